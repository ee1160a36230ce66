"""The filter that leaves out what belongs to time series."""

from __future__ import annotations

from typing import Any

from bson import Regex

from catalog.namespaces import Namespace
from rewrite.commands.list_collections import list_without_buckets
from rewrite.plan import PassThrough, Request, Single
from rewrite.profile import Profile

OTHERS = {"name": {"$not": Regex(r"^system\.buckets\."), "$ne": "system.views"}}


def plan(**fields: Any) -> object:
    body = {"listCollections": 1, **fields}
    return list_without_buckets(Request("listCollections", Namespace("db", ""), body, None, Profile()))


def narrowed(**fields: Any) -> Any:
    made = plan(**fields)
    assert isinstance(made, Single)
    assert made.step.database == "db"
    return made.step.body


def test_the_clients_filter_holds_as_well() -> None:
    assert narrowed(nameOnly=True) == {"listCollections": 1, "nameOnly": True, "filter": OTHERS}
    assert narrowed(filter={})["filter"] == OTHERS
    assert narrowed(filter=None)["filter"] == OTHERS
    assert narrowed(filter={"type": "view"})["filter"] == {"$and": [{"type": "view"}, OTHERS]}


def test_a_filter_that_is_none_is_refused_by_the_backend() -> None:
    assert plan(filter=5) == PassThrough()
