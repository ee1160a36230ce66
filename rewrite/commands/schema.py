"""Commands that the backend answers exactly as the client wants, and what they mean for the proxy.

The backend holds a native collection, so it checks options and names itself, with its own errors (C2-C9,
C24, C40-C44, I5-I8). What is left here is to let go of buckets and options that are no longer true (W72).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from catalog.namespaces import Namespace
from rewrite.plan import ClearBuckets, DropNamespace, Effect, ForgetNamespace, PassThrough, Plan, Request, Rewriter

EffectsOf = Callable[[Request], tuple[Effect, ...]]


def _changed(request: Request) -> tuple[Effect, ...]:
    """Options changed: buckets that were opened under the old ones are left as they are (C40)."""
    namespace = request.namespace.logical
    return (ClearBuckets(namespace), ForgetNamespace(namespace))


def _created(request: Request) -> tuple[Effect, ...]:
    return (ForgetNamespace(request.namespace.logical),)


def _dropped(request: Request) -> tuple[Effect, ...]:
    """Dropping the buckets drops the collection (C24)."""
    return (DropNamespace(request.namespace.logical),)


def _database_dropped(request: Request) -> tuple[Effect, ...]:
    return (DropNamespace(Namespace(request.namespace.database, "")),)


def _renamed(request: Request) -> tuple[Effect, ...]:
    """A time-series collection cannot be renamed (C23), but what takes or leaves a name makes it another one."""
    names = (request.body.get("renameCollection"), request.body.get("to"))
    return tuple(ForgetNamespace(namespace_of(name)) for name in names if isinstance(name, str))


def namespace_of(full_name: str) -> Namespace:
    """The namespace in a full name such as ``db.system.buckets.x``, by its logical collection."""
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
    """A client writes bucket documents itself: the backend does it, the catalog lets go of them (W72)."""
    return PassThrough((ClearBuckets(request.namespace.logical),))
