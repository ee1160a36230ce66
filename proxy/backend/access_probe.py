"""Chooses how the backend's time-series collections are read and written (``rewrite.profile.Access``).

Buckets are used where that is proven and the proxy's account may do it; otherwise only public commands are, which every
server with time-series collections has. The choice is made when the proxy connects, and again when it may have changed:
when the server refuses a bucket namespace as such, and regularly with the privileges of the account and the feature
compatibility version.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import structlog

from catalog.errors import CommandError
from catalog.namespaces import BUCKETS_PREFIX, Namespace
from proxy.backend.least_role import Privilege, has_native_rights, missing_on_buckets
from proxy.backend.probing import profile_of
from proxy.request.attempt import SERVER_CURSOR_TIMEOUT_SECONDS
from proxy.request.authorisation import AccessControl, Rights
from proxy.request.ports import RunCommand
from rewrite.profile import Access, Profile, Why

log = structlog.get_logger(__name__)

BUCKETS_CLOSED: Final = 491
"""The error code of servers that refuse commands on bucket namespaces of time-series collections."""

UNPROVEN_VERSION: Final = (8, 0, 0)
"""Servers from this version on are used natively, unless a setting names buckets."""

WantedAccess: TypeAlias = Literal["auto", "buckets", "native"]

_FEATURES: Final = {"getParameter": 1, "featureCompatibilityVersion": 1}
_INSERT: Final = ("insert",)
ANY_BUCKETS: Final = Namespace("admin", BUCKETS_PREFIX + "tsproxy")
"""A bucket namespace that need not exist."""


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """What the choice depends on.

    ``privileges`` are those of the account, ``None`` without access control. ``is_closed``: the server refuses bucket
    namespaces.
    """

    version: tuple[int, int, int]
    is_mongos: bool = False
    privileges: Sequence[Mapping[str, Any]] | None = None
    is_closed: bool = False


def access_of(wanted: WantedAccess, facts: AccessFacts) -> tuple[Access, Why, str]:
    """The access, why, and the same as a text."""
    if wanted != "auto":
        return Access(wanted), Why.CHOSEN, f"timeseries_access is {wanted}"
    if facts.is_closed:
        closed = f"the server has closed the namespaces of bucket collections (error {BUCKETS_CLOSED})"
        return Access.NATIVE, Why.CLOSED, closed
    if facts.version >= UNPROVEN_VERSION:
        return Access.NATIVE, Why.VERSION, "access to buckets is untested with MongoDB 8.0 and later"
    if facts.is_mongos:
        return Access.NATIVE, Why.SHARDED, "access to buckets is untested with sharded clusters"
    missing = [] if facts.privileges is None else missing_on_buckets(facts.privileges)
    if missing and has_native_rights(facts.privileges or ()):
        lacking = f"the backend's account lacks {', '.join(missing)} on bucket collections"
        return Access.NATIVE, Why.RIGHTS, lacking
    return Access.BUCKETS, Why.ABLE, "the server allows access to buckets"


@dataclass(frozen=True, slots=True)
class Followers:
    """What is called after a change: of the profile's ``Access``, and of a database where the account got rights."""

    changed: Callable[[], None] = lambda: None
    covered: Callable[[str], None] = lambda database: None


class AccessProbe:
    """Asks the backend, and has the ``profile`` that is right now.

    ``access``: whether there is access control. ``rights``: those of the account, ``None`` without access control.
    ``asked`` asks for the privileges of the account, and raises ``CommandError``.
    """

    def __init__(
        self,
        wanted: WantedAccess,
        run: RunCommand,
        asked: Callable[[], Awaitable[Sequence[Privilege]]],
        access: AccessControl,
        profile: Profile,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wanted: WantedAccess = wanted
        self._run = run
        self._asked = asked
        self.access = access
        self.profile = profile
        self.privileges: Sequence[Mapping[str, Any]] | None = None
        """Those of the account at the latest look; ``None`` without access control."""
        self.rights: Rights | None = None
        self.feature_compatibility = ""
        """``""`` if the account may not ask for it, or the backend is a mongos."""
        self._now_seconds = now_seconds
        self._cursors_until_seconds = now_seconds() + SERVER_CURSOR_TIMEOUT_SECONDS
        """Until then, clients may have cursors on buckets: of a process that this one replaces, or of this one."""
        self._closed: Namespace | None = None
        """The bucket namespace that the server has refused."""
        self._followers = Followers()

    def follow(self, followers: Followers) -> None:
        """Tell these from now on."""
        self._followers = followers

    def covers(self, database: str) -> None:
        """The account has got rights in this database, whose commands were relayed until now."""
        self._followers.covered(database)

    async def look(self) -> None:
        """Ask the backend, and choose the access; raises ``CommandError``, and nothing changes then."""
        privileges = await self.asked_privileges()
        hello, build = await self._run("admin", {"hello": 1}), await self._run("admin", {"buildInfo": 1})
        profile = replace(profile_of(hello, build), unpacks_buckets=self.profile.unpacks_buckets)
        self.privileges = privileges
        self.rights = None if privileges is None else Rights(privileges)
        features = await self._features()
        if features != self.feature_compatibility:
            log.debug("feature compatibility version", version=features, before=self.feature_compatibility)
            self.feature_compatibility = features
        is_closed = await are_buckets_closed(self._run, self._closed or ANY_BUCKETS)
        if not is_closed:
            self._closed = None
        self._use(profile, AccessFacts(profile.version, profile.is_mongos, privileges, is_closed))

    def buckets_closed(self, namespace: Namespace) -> None:
        """The server has refused this bucket namespace: go on natively at once, unless a setting names buckets."""
        self._closed = namespace
        if self.profile.uses_buckets:
            self._use(self.profile, AccessFacts(self.profile.version, is_closed=True))

    def _use(self, profile: Profile, facts: AccessFacts) -> None:
        before = self.profile
        access, why, reason = access_of(self._wanted, facts)
        is_native = access is Access.NATIVE
        if not is_native:
            self._cursors_until_seconds = math.inf
        had_buckets = is_native and self._now_seconds() < self._cursors_until_seconds
        profile = replace(profile, access=access, why=why, reason=reason, had_buckets=had_buckets)
        if profile == before:
            # Plans are kept for a profile: an equal one must stay the same object.
            return
        self.profile = profile
        if profile.access is not before.access:
            self._followers.changed()

    async def asked_privileges(self) -> Sequence[Mapping[str, Any]] | None:
        """Those of the account; ``None`` without access control. Raises ``CommandError``."""
        return await self._asked() if self.access.enforced else None

    def may_insert(self, namespace: Namespace) -> bool:
        """Whether the account may insert into this collection itself."""
        return self.rights is None or self.rights.allow(_INSERT, namespace)

    async def _features(self) -> str:
        try:
            answer = await self._run("admin", dict(_FEATURES))
        except CommandError:
            return ""
        return str(answer.get("featureCompatibilityVersion", {}).get("version", ""))


async def are_buckets_closed(run: RunCommand, buckets: Namespace = ANY_BUCKETS) -> bool:
    """Whether the server refuses this bucket namespace as such."""
    body = {"find": buckets.collection, "limit": 1, "singleBatch": True, "projection": {"_id": 1}}
    try:
        await run(buckets.database, body)
    except CommandError as error:
        return error.code == BUCKETS_CLOSED
    return False
