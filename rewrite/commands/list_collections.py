"""``listCollections`` without the collections in which a server keeps its time series (C20).

For tools that would copy, drop or show them as collections of their own. The backend applies the filter, so
cursors, ``nameOnly`` and ``authorizedCollections`` work as without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bson import Regex

from catalog.namespaces import BUCKETS_PREFIX
from rewrite.plan import PassThrough, Plan, Request, Rewriter, Single, Step

VIEWS: Final = "system.views"

_OTHERS: Final[Mapping[str, Any]] = {
    "name": {"$not": Regex("^" + BUCKETS_PREFIX.replace(".", r"\.")), "$ne": VIEWS},
}


def list_without_buckets(request: Request) -> Plan:
    """The client's command with a narrower filter; one whose filter is not a document is for the backend to refuse."""
    wanted = request.body.get("filter")
    if wanted is not None and not isinstance(wanted, Mapping):
        return PassThrough()
    narrowed = {"$and": [wanted, _OTHERS]} if wanted else _OTHERS
    return Single(Step(request.namespace.database, {**request.body, "filter": narrowed}))


HIDING_BUCKETS: Mapping[str, Rewriter] = {"listCollections": list_without_buckets}
"""Rewriters that are used only if ``hide_bucket_collections`` is set."""
