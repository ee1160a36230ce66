"""Commands that the proxy refuses because they crash the server (H1)."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from rewrite.plan import PassThrough, Plan, Request, Rewriter


def _onto_capped(request: Request) -> Plan:
    """The same error as for the collection to which the buckets belong (C23).

    Raises ``CommandError`` 166.
    """
    refuse_always(request.name, request.namespace)
    return PassThrough()


def refuse_always(name: str, namespace: Namespace) -> None:
    """Raise ``CommandError`` 166 for such a command on buckets, whatever its other fields."""
    if name in REFUSED and namespace.is_buckets:
        raise CommandError(166, f"Namespace {namespace.logical} is a timeseries collection")


REFUSED: Mapping[str, Rewriter] = {
    "cloneCollectionAsCapped": _onto_capped,
    "convertToCapped": _onto_capped,
}
