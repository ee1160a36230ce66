"""Checks whether the proxy's own account has the privileges that the proxy requires.

docs/security.md shows the role for access to buckets; for native access, ``readWrite`` is enough. Either may be limited
to some databases, so one resource of each kind is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from catalog.namespaces import BUCKETS_PREFIX

ROLE: Final = "tsproxy"
"""The name of the role in docs/security.md."""
LIST: Final = "listCollections"
BUCKET_ACTIONS: Final = ("find", "insert", "update", "remove", "bypassDocumentValidation")
ON_COLLECTIONS: Final = ("find", "insert", "remove")
"""What native access requires: inserts for clients, reads after a restart, and deletes of nothing to wait for write
concerns."""
ANY_ACTION: Final = "anyAction"
OF_THE_SERVER: Final = ("local", "config")
"""Databases that a resource of all databases does not cover; their buckets it does."""

Privilege = Mapping[str, Any]
"""A resource and actions on it, as in the command ``createRole``."""


def listing(*further: str) -> Privilege:
    """The privilege to list collections, with ``further`` actions on all collections."""
    return {"resource": {"db": "", "collection": ""}, "actions": [LIST, *further]}


def on_buckets(actions: Iterable[str] = BUCKET_ACTIONS) -> Privilege:
    """The privilege for these actions on all buckets."""
    return {"resource": {"db": "", "system_buckets": ""}, "actions": list(actions)}


def least_privileges() -> list[Privilege]:
    """The privileges of the least role."""
    return [listing(), on_buckets()]


def missing_rights(privileges: Iterable[Privilege]) -> list[str]:
    """Descriptions of the missing privileges of the least role; ``privileges`` are from ``connectionStatus``."""
    lists, writes = _missing(privileges)
    return [*([LIST] if lists else []), *([f"{', '.join(writes)} on system_buckets"] if writes else [])]


def missing_privileges(privileges: Iterable[Privilege]) -> list[Privilege]:
    """As ``missing_rights``, as the commands ``createRole`` and ``grantPrivilegesToRole`` take them."""
    lists, writes = _missing(privileges)
    return [*([listing()] if lists else []), *([on_buckets(writes)] if writes else [])]


def missing_on_buckets(privileges: Iterable[Privilege]) -> list[str]:
    """The missing actions on buckets."""
    return _missing(privileges)[1]


def missing_natively(privileges: Iterable[Privilege]) -> list[str]:
    """As ``missing_rights``, for native access."""
    known = list(privileges)
    allowed = {action for privilege in known if _is_ordinary(privilege) for action in privilege.get("actions", ())}
    missing = [] if ANY_ACTION in allowed else [action for action in ON_COLLECTIONS if action not in allowed]
    lists, _ = _missing(known)
    return [*([LIST] if lists else []), *([f"{', '.join(missing)} on collections"] if missing else [])]


def has_native_rights(privileges: Iterable[Privilege]) -> bool:
    """Whether the account has what native access requires."""
    return not missing_natively(privileges)


def is_no_concern(database: str, privileges: Iterable[Privilege]) -> bool:
    """Whether the account needs no rights on this database, although it has those that the proxy requires.

    It may have neither the right to list collections nor one on buckets there. An account that lacks a required right
    everywhere has probably lost it, so then every database is its concern.
    """
    known = list(privileges)
    lists, writes = _missing(known)
    here = [privilege for privilege in known if _covers(privilege, database)]
    lists_here, writes_here = _missing(here)
    if lists or not lists_here:
        return False
    return database in OF_THE_SERVER or (not writes and len(writes_here) == len(BUCKET_ACTIONS))


def _covers(privilege: Privilege, database: str) -> bool:
    """Whether its resource includes collections of this database."""
    resource = privilege.get("resource", {})
    if resource.get("anyResource"):
        return True
    named = resource.get("db", "")
    if "system_buckets" not in resource and "collection" not in resource:
        return False
    is_of_everything = not named and (database not in OF_THE_SERVER or "system_buckets" in resource)
    return bool(named == database) or is_of_everything


def _is_ordinary(privilege: Privilege) -> bool:
    """Whether it is about ordinary collections."""
    resource = privilege.get("resource", {})
    name = resource.get("collection")
    return bool(resource.get("anyResource")) or (isinstance(name, str) and not name.startswith("system."))


def _missing(privileges: Iterable[Privilege]) -> tuple[bool, list[str]]:
    """Whether listing collections is missing, and the missing actions on buckets."""
    everywhere: set[str] = set()
    of_buckets: set[str] = set()
    for privilege in privileges:
        resource, actions = privilege.get("resource", {}), privilege.get("actions", ())
        everywhere.update(actions)
        if (
            resource.get("anyResource")
            or "system_buckets" in resource
            or str(resource.get("collection", "")).startswith(BUCKETS_PREFIX)
        ):
            of_buckets.update(actions)
    writes = [] if ANY_ACTION in of_buckets else [action for action in BUCKET_ACTIONS if action not in of_buckets]
    return not {LIST, ANY_ACTION} & everywhere, writes
