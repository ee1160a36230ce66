"""Commands that the proxy never lets through, because they end the server's process (H1)."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.errors import CommandError
from rewrite.plan import PassThrough, Plan, Request, Rewriter


def _onto_capped(request: Request) -> Plan:
    """Buckets are never capped: the answer is the one for the collection whose buckets they are (C23).

    Raises ``CommandError`` 166.
    """
    if request.namespace.is_buckets:
        raise CommandError(166, f"Namespace {request.namespace.logical} is a timeseries collection")
    return PassThrough()


REFUSED: Mapping[str, Rewriter] = {
    "cloneCollectionAsCapped": _onto_capped,
    "convertToCapped": _onto_capped,
}
