"""Deletes that end the process of a server from 7.0, so they never reach it (H8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from catalog.bson.faithful import Opaque
from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from rewrite.plan import Request
from rewrite.statements import Statements

_NOT_SUPPORTED: Final = 115
_LOGICAL: Final = ("$and", "$or", "$nor")


def is_fatal(request: Request, target: VirtualCollection, entry: Mapping[str, Any]) -> bool:
    """Whether this statement has ``$expr``, and the collation that counts is the collection's own."""
    if request.profile.version < (7, 0, 0) or target.collation is None or entry.get("collation"):
        return False
    return _has_expression(entry.get("q"))


def refuse_fatal(request: Request, target: VirtualCollection, deletes: Any) -> None:
    """Raise ``CommandError`` 115 if the backend must not execute these statements, or explain them."""
    if request.profile.version < (7, 0, 0) or target.collation is None:
        return
    if isinstance(deletes, Statements):
        fatal = True
    else:
        entries = deletes if isinstance(deletes, list) else []
        fatal = any(isinstance(entry, Mapping) and is_fatal(request, target, entry) for entry in entries)
    if fatal:
        raise CommandError(
            _NOT_SUPPORTED,
            f"the server crashes on a delete with $expr from {target.namespace}, which has a collation; name the "
            "collation in the statement, or delete without explain and outside of a transaction",
        )


def _has_expression(query: Any) -> bool:
    if isinstance(query, Opaque):
        # It is never decoded, so it may have one.
        return True
    if not isinstance(query, Mapping):
        return False
    arms = [arm for name in _LOGICAL if isinstance(query.get(name), list) for arm in query[name]]
    return "$expr" in query or any(map(_has_expression, arms))
