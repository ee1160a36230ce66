"""Commands that are relayed, and their effects on the proxy.

The backend has a native collection and checks options and names itself (C2-C9, C24, C40-C44, I5-I8). The effects remove
outdated buckets and options from the proxy's state (W72).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from catalog.errors import COMMAND_NOT_SUPPORTED, CommandError
from catalog.namespaces import Namespace
from rewrite.plan import ClearBuckets, DropNamespace, Effect, ForgetNamespace, PassThrough, Plan, Request, Rewriter
from rewrite.profile import Profile

EffectsOf = Callable[[Request], tuple[Effect, ...]]


def _changed(request: Request) -> tuple[Effect, ...]:
    """Options changed; open buckets stay as they are (C40)."""
    namespace = request.namespace.logical
    return (ClearBuckets(namespace), ForgetNamespace(namespace))


def _created(request: Request) -> tuple[Effect, ...]:
    if "timeseries" in request.body:
        refuse_timeseries(request.name, request.namespace, request.profile)
    return (ForgetNamespace(request.namespace.logical),)


def _dropped(request: Request) -> tuple[Effect, ...]:
    """Dropping the buckets drops the collection (C24)."""
    return (DropNamespace(request.namespace.logical),)


def _database_dropped(request: Request) -> tuple[Effect, ...]:
    return (DropNamespace(Namespace(request.namespace.database, "")),)


def _renamed(request: Request) -> tuple[Effect, ...]:
    """A time-series collection cannot be renamed (C23), but a rename can change what its name refers to."""
    names = (request.body.get("renameCollection"), request.body.get("to"))
    return tuple(ForgetNamespace(namespace_of(name)) for name in names if isinstance(name, str))


def refuse_timeseries(name: str, namespace: Namespace, profile: Profile) -> None:
    """Raise ``CommandError`` 115 for a ``create`` with ``timeseries`` if the backend has no such collections.

    Some servers would ignore the option and create an ordinary collection.
    """
    if name == "create" and not profile.has_native_timeseries:
        raise CommandError(
            COMMAND_NOT_SUPPORTED,
            f"{namespace} was not created: the backend, which reports version {profile.shown_version}, has no "
            "time-series collections; use MongoDB 5.0 or later as the backend",
        )


def namespace_of(full_name: str) -> Namespace:
    """The logical collection for a full name such as ``db.system.buckets.x``."""
    database, _, collection = full_name.partition(".")
    return Namespace(database, collection).logical


def _passing(effects: EffectsOf) -> Rewriter:
    def rewrite(request: Request) -> Plan:
        return PassThrough(effects(request))

    return rewrite


EFFECTS: Mapping[str, EffectsOf] = {
    "collMod": _changed,
    "create": _created,
    "drop": _dropped,
    "dropDatabase": _database_dropped,
    "renameCollection": _renamed,
}

SCHEMA: Mapping[str, Rewriter] = {name: _passing(effects) for name, effects in EFFECTS.items()}


def cleared_by_direct_write(request: Request) -> Plan:
    """A client writes bucket documents itself: relayed, and cleared from the catalog (W72)."""
    return PassThrough((ClearBuckets(request.namespace.logical),))
