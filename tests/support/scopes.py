"""Scopes and requests for tests of pure rewriting: time field ``t``, meta field ``m``, hourly buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from rewrite.plan import Request
from rewrite.profile import Profile
from rewrite.stages.draft import Draft, Stage
from rewrite.stages.scope import Scope

TARGET = VirtualCollection(Namespace("db", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
SCOPE = Scope.of(TARGET, Profile())
OLD_SCOPE = replace(SCOPE, profile=Profile(version=(5, 0, 4)))


def draft(*tail: Stage, **fields: Any) -> Draft:
    """A draft in which nothing has been rewritten."""
    return Draft(head=(), tail=tail, **fields)


def request(body: Mapping[str, Any], **fields: Any) -> Request:
    """A client's command on ``db.x``."""
    known: dict[str, Any] = {"target": TARGET, "profile": Profile(), **fields}
    return Request(name=next(iter(body)), namespace=TARGET.namespace, body=body, **known)
