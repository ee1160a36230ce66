"""Commands that the proxy never lets through, because they end the server's process (H1)."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from rewrite.plan import PassThrough, Plan, Request, Rewriter


def _onto_capped(request: Request) -> Plan:
    """Buckets are never capped: the answer is the one for the collection whose buckets they are (C23).

    Raises ``CommandError`` 166.
    """
    refuse_always(request.name, request.namespace)
    return PassThrough()


def refuse_always(name: str, namespace: Namespace) -> None:
    """Raise ``CommandError`` 166 for such a command on buckets, whatever else is in it."""
    if name in REFUSED and namespace.is_buckets:
        raise CommandError(166, f"Namespace {namespace.logical} is a timeseries collection")


REFUSED: Mapping[str, Rewriter] = {
    "cloneCollectionAsCapped": _onto_capped,
    "convertToCapped": _onto_capped,
}
