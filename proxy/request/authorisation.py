"""Checks the privileges of clients, with replies of the backend that are cached for a limited time.

The proxy's own account acts for a client (writes buckets, reads them for a delete) only if the client may do the same
on the collection. The backend is asked over the client's own connection, with ``connectionStatus``; its reply is used
for ``roles_refresh_seconds``. A command that is not allowed is not refused here: it is relayed, and the backend refuses
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from catalog.bounded import BoundedCache
from catalog.bson.codec import decode
from catalog.bson.raw import BOOL, INT32, fields_of, unpack_int32
from catalog.errors import UNAUTHORIZED, BackendUnavailable, CommandError
from catalog.identity import Identity
from catalog.namespaces import Namespace
from proxy.upstream.not_primary import says_ok

MAX_DECISIONS: Final = 64
"""Maximum number of cached decisions for one reply of the backend."""
ANSWERS_BYTES: Final = 16 << 20
"""Limit of the cache of decoded replies."""

REFUSAL_SECONDS: Final = 1.0
"""Time for which a write is not allowed without asking again: a right may be granted at any time."""

_FIND: Final = ("find",)
_CODE: Final = b"\x10code\0"
_INT32: Final = bytes([INT32])

PRIVILEGES: Final[Mapping[str, Any]] = {"connectionStatus": 1, "showPrivileges": True}
"""Returns the privileges of the connection; needs no privilege itself."""

PROBE: Final[Mapping[str, Any]] = {"getParameter": 1, "authenticationMechanisms": 1, "$db": "admin"}
"""A harmless command that is refused on an unauthenticated connection if access control is enabled."""


class ResourceKind(Enum):
    """The kind of a privilege's resource; the cluster resource covers no collection."""

    ANYTHING = auto()
    CLUSTER = auto()
    COLLECTION = auto()
    BUCKETS = auto()


Resource = tuple[ResourceKind, str, str]
"""Kind, database and collection; an empty name means all."""

_ANYTHING: Final[Resource] = (ResourceKind.ANYTHING, "", "")
_CLUSTER: Final[Resource] = (ResourceKind.CLUSTER, "", "")


def _resource(document: Mapping[str, Any]) -> Resource | None:
    if document.get("anyResource") is True:
        return _ANYTHING
    if document.get("cluster") is True:
        return _CLUSTER
    database = document.get("db", "")
    if isinstance(document.get("system_buckets"), str) and isinstance(database, str):
        return ResourceKind.BUCKETS, database, document["system_buckets"]
    if isinstance(document.get("collection"), str) and isinstance(document.get("db"), str):
        return ResourceKind.COLLECTION, document["db"], document["collection"]
    return None


def resources_of(namespace: Namespace) -> tuple[Resource, ...]:
    """The resources that cover a collection; an empty name does not cover collections of the system."""
    database, collection = namespace.database, namespace.collection
    exact = (ResourceKind.COLLECTION, database, collection)
    if namespace.is_buckets:
        logical = namespace.logical.collection
        names = ((database, logical), (database, ""), ("", logical), ("", ""))
        return _ANYTHING, exact, *((ResourceKind.BUCKETS, *each) for each in names)
    if collection.startswith("system."):
        return _ANYTHING, exact
    wider = ((database, ""), ("", collection), ("", ""))
    return _ANYTHING, exact, *((ResourceKind.COLLECTION, *each) for each in wider)


def may_on_cluster(privileges: Iterable[Mapping[str, Any]], action: str) -> bool:
    """Whether privileges as ``connectionStatus`` lists them allow this action on the cluster resource."""
    return any(
        not {action, "anyAction"}.isdisjoint(privilege.get("actions", ()))
        for privilege in privileges
        if privilege["resource"].get("cluster") or privilege["resource"].get("anyResource")
    )


class Rights:
    """The privileges in one reply of the backend."""

    __slots__ = ("_actions", "_decided")

    def __init__(self, privileges: Sequence[Mapping[str, Any]]) -> None:
        """``privileges`` as ``connectionStatus`` lists them; unknown ones allow nothing."""
        self._actions: dict[Resource, frozenset[str]] = {}
        self._decided: dict[tuple[tuple[str, ...], Namespace], bool] = {}
        for privilege in privileges:
            resource = _resource(privilege.get("resource", {}))
            if resource is not None:
                actions = frozenset(privilege.get("actions", ()))
                self._actions[resource] = self._actions.get(resource, frozenset()) | actions

    def allow(self, actions: tuple[str, ...], namespace: Namespace) -> bool:
        """Whether all these actions on this collection are allowed."""
        key = (actions, namespace)
        decision = self._decided.get(key)
        if decision is None:
            covering = [self._actions.get(resource, frozenset()) for resource in resources_of(namespace)]
            decision = all(any(action in allowed for allowed in covering) for action in actions)
            if len(self._decided) >= MAX_DECISIONS:
                self._decided.clear()
            self._decided[key] = decision
        return decision

    def allow_on_cluster(self, actions: tuple[str, ...]) -> bool:
        """Whether all these actions on the cluster are allowed."""
        allowed = self._actions.get(_CLUSTER, frozenset()) | self._actions.get(_ANYTHING, frozenset())
        return "anyAction" in allowed or allowed.issuperset(actions)


@dataclass(frozen=True, slots=True)
class KnownRights:
    """The rights of one client connection, with the identity that they belong to.

    They allow something until ``until_seconds``, and refuse a write until ``refuses_until_seconds``.
    """

    identity: Identity
    rights: Rights
    until_seconds: float
    refuses_until_seconds: float = 0.0


class _Upstream(Protocol):
    async def run(self, database: str, body: Mapping[str, Any] | bytes, extra: bytes = b"") -> bytes:
        """Run one command over the client's own connection."""
        ...


class AuthorisedSession(Protocol):
    """A client's session, as this module needs it."""

    rights: KnownRights | None

    @property
    def identity(self) -> Identity:
        """The users that the client has authenticated as."""

    @property
    def upstream(self) -> _Upstream:
        """The client's own connection to the backend."""


class AccessControl:
    """Whether access control is enabled at the backend; assumed until the backend shows otherwise.

    Without credentials in the backend's connection string, the proxy can do no more than any unauthenticated client, so
    no checks are needed.
    """

    def __init__(self, *, has_account: bool) -> None:
        self.has_account = has_account
        self._refuses = True

    @property
    def enforced(self) -> bool:
        """Whether the privileges of clients must be checked."""
        return self.has_account and self._refuses

    def record_probe(self, reply: Mapping[str, Any]) -> None:
        """Record the reply to ``PROBE`` on an unauthenticated connection; anything but success means "enabled".

        Raises ``CommandError`` if access control is enabled and the proxy has no account.
        """
        self._refuses = reply.get("ok") != 1
        if not self.has_account and reply.get("code") == UNAUTHORIZED:
            raise CommandError(
                UNAUTHORIZED,
                "the backend requires authentication: "
                "add the credentials of the proxy's own account to the backend's connection string",
            )


def is_unauthorized(reply: bytes) -> bool:
    """Whether a raw command reply says that a privilege is missing."""
    if _CODE not in reply:
        return False
    fields = fields_of(reply)
    code = fields.get(b"code", b"")
    return code[:1] == _INT32 and bool(unpack_int32(code, 1)[0] == UNAUTHORIZED) and not says_ok(fields)


def _weight(told: bytes, rights: Rights) -> int:
    """The estimated memory: decoded rights take several times the size of the reply; decisions are bounded."""
    return 6 * len(told) + 400 * MAX_DECISIONS


class Authorisation:
    """Decides for clients, from the cache if possible."""

    def __init__(self, access: AccessControl, now_seconds: Callable[[], float], refresh_seconds: float) -> None:
        self._access = access
        self._now_seconds = now_seconds
        self.refresh_seconds = refresh_seconds
        # Many clients have the same roles: equal replies are decoded once.
        self._decoded: BoundedCache[bytes, Rights] = BoundedCache(ANSWERS_BYTES, _weight)

    @property
    def is_enforced(self) -> bool:
        """Whether the privileges of clients must be checked."""
        return self._access.enforced

    def must_log_in(self, session: AuthorisedSession) -> bool:
        """Whether the client has not logged in although it must."""
        return not session.identity and self._access.enforced

    def known(self, session: AuthorisedSession, actions: tuple[str, ...], namespace: Namespace) -> bool | None:
        """The cached decision; ``None`` if the backend must be asked."""
        if not self._access.enforced:
            return True
        rights = self._known_rights(session)
        return None if rights is None else rights.allow(actions, namespace)

    def _known_rights(self, session: AuthorisedSession) -> Rights | None:
        known = session.rights
        if known is None or known.identity != session.identity or self._now_seconds() >= known.until_seconds:
            return None
        return known.rights

    async def rights(self, session: AuthorisedSession) -> Rights:
        """All rights of this connection, asking the backend if needed; raises ``BackendUnavailable``."""
        return self._known_rights(session) or await self._ask(session)

    async def allows(self, session: AuthorisedSession, actions: tuple[str, ...], namespace: Namespace) -> bool:
        """Whether a write is allowed, asking the backend if needed; raises ``BackendUnavailable``.

        A cached refusal counts for a second only, so that a right that was granted takes effect.
        """
        decision = self.known(session, actions, namespace)
        known = session.rights
        if decision is False and (known is None or self._now_seconds() >= known.refuses_until_seconds):
            decision = None
        if decision is None:
            decision = (await self._ask(session)).allow(actions, namespace)
        return decision

    async def reads_buckets(self, session: AuthorisedSession, namespace: Namespace) -> bool:
        """Whether a read of this collection may be rewritten to its buckets for this client.

        The roles ``read`` and ``readWrite`` do not include buckets, so most clients read through the view. They get the
        same rows, so a cached refusal counts as long as any other answer.
        """
        return await self._may_find(session, namespace) and await self._may_find(session, namespace.buckets)

    async def _may_find(self, session: AuthorisedSession, namespace: Namespace) -> bool:
        decision = self.known(session, _FIND, namespace)
        return (await self._ask(session)).allow(_FIND, namespace) if decision is None else decision

    async def _ask(self, session: AuthorisedSession) -> Rights:
        identity = session.identity
        asked_seconds = self._now_seconds()
        reply = await session.upstream.run("admin", PRIVILEGES)
        authentication = fields_of(reply).get(b"authInfo")
        if authentication is None:
            answer = decode(reply)
            raise BackendUnavailable(str(answer.get("errmsg", "no answer")), code=int(str(answer.get("code", 6))))
        told = fields_of(authentication, 1).get(b"authenticatedUserPrivileges", b"")
        rights = self._decoded.get(told)
        if rights is None:
            rights = Rights(decode(reply)["authInfo"].get("authenticatedUserPrivileges", ()))
            self._decoded.put(told, rights)
        session.rights = KnownRights(
            identity, rights, asked_seconds + self.refresh_seconds, asked_seconds + REFUSAL_SECONDS
        )
        return rights


class _Command(Protocol):
    @property
    def body(self) -> bytes: ...

    @property
    def sequences(self) -> Sequence[tuple[str, Sequence[bytes]]]: ...

    @property
    def fields(self) -> Mapping[bytes, tuple[int, int, int]]: ...


INSERT: Final = ("insert",)
_BYPASS: Final = b"bypassDocumentValidation"
_OWN_ROLES: Final = b"$$USER_ROLES"
_UPSERTS: Final = re.compile(rb"[\x01-\x07\x09-\x13\x7f\xff]upsert\0|\x08upsert\0\x01")
"""A field ``upsert`` that is not ``false``, of a statement or of anything in it."""


def write_actions(command: _Command, actions: tuple[str, ...]) -> tuple[str, ...]:
    """The actions that a write requires, ``actions`` among them; bypassing the validator is a separate one.

    Servers require it of deletes, too.
    """
    element = command.fields.get(_BYPASS)
    if element is None:
        return actions
    kind, start, end = element
    return actions if kind == BOOL and command.body[start:end] == b"\0" else (*actions, _BYPASS.decode())


def may_upsert(command: _Command) -> bool:
    """Whether an update may have a statement with ``upsert``, which requires ``INSERT`` as well."""
    return any(_UPSERTS.search(part) is not None for part in _parts(command))


def names_own_roles(command: _Command) -> bool:
    """Whether a command depends on the user's roles (from 7.0), which the proxy's account does not have."""
    return any(_OWN_ROLES in part for part in _parts(command))


def _parts(command: _Command) -> Iterator[bytes]:
    yield command.body
    for _, statements in command.sequences:
        yield from statements
