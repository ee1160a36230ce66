"""Commands that the proxy refuses: because they crash the server (H1), or would silently do something else."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from rewrite.commands.schema import refuse_timeseries
from rewrite.plan import PassThrough, Plan, Request, Rewriter
from rewrite.profile import Profile


def _onto_capped(request: Request) -> Plan:
    """The same error as for the collection to which the buckets belong (C23).

    Raises ``CommandError`` 166.
    """
    refuse_always(request.name, request.namespace, request.profile)
    return PassThrough()


def would_cap_buckets(name: str, namespace: Namespace, profile: Profile) -> bool:
    """Whether a command would make a capped collection of buckets, on a server that has buckets."""
    return name in REFUSED and namespace.is_buckets and profile.has_native_timeseries


def refuse_always(name: str, namespace: Namespace, profile: Profile) -> None:
    """Raise ``CommandError`` for what is refused even if the command cannot be decoded.

    166: such a command on buckets, if the server has them. 115: see ``refuse_timeseries``; a ``create`` is rewritten
    only if it has the option.
    """
    if would_cap_buckets(name, namespace, profile):
        raise CommandError(166, f"Namespace {namespace.logical} is a timeseries collection")
    refuse_timeseries(name, namespace, profile)


REFUSED: Mapping[str, Rewriter] = {
    "cloneCollectionAsCapped": _onto_capped,
    "convertToCapped": _onto_capped,
}
