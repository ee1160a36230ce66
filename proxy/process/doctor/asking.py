"""Asks the backend what the proxy needs to know of it. Nothing is changed, and each question has a time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from bson.errors import InvalidBSON

from catalog.bson.codec import decode, encode
from catalog.errors import BackendUnavailable, CommandError
from proxy.backend.access_probe import are_buckets_closed
from proxy.backend.current_op import CurrentOperations, account_of
from proxy.backend.first_answer import may_pass
from proxy.backend.probing import profile_of, unpacks_buckets
from proxy.backend.service import ServicePool
from proxy.backend.service_auth import introducing
from proxy.backend.service_connection import Authenticate
from proxy.process.doctor.found import Account, Found, Learned, Member, Target, Unknown
from proxy.process.doctor.listing import collections_of
from proxy.process.doctor.reaching import NAME, reached
from proxy.process.doctor.target import Backend, backend_of
from proxy.process.growth_policy import GROW_IN_PLACE, why_in_place
from proxy.process.open_files import raised
from proxy.request.authorisation import PRIVILEGES, AccessControl, may_on_cluster
from proxy.request.ports import RunCommand
from proxy.settings.config import ConfigurationError
from proxy.settings.redaction import redact_uri
from proxy.settings.table import Settings
from proxy.upstream.dialing import parse_upstream_name
from rewrite.profile import Profile

T = TypeVar("T")

STEP_SECONDS: Final = 5.0
"""Time limit of each question, and of reaching a server."""
CONNECTIONS: Final = 4

_NO_BACKEND: Final = "backend = '' names no backend to examine: set it with --backend or backend_file"


async def examined(settings: Settings) -> Found:
    """Everything that can be found out about the backend of these settings.

    Raises ``ConfigurationError`` if the settings name none, or its connection string is not valid.
    """
    if settings.backend is None:
        raise ConfigurationError([_NO_BACKEND])
    patience_seconds = min(settings.connect_timeout_ms / 1000, STEP_SECONDS)
    try:
        backend = await backend_of(settings.backend, patience_seconds)
    except BackendUnavailable as error:
        uri = redact_uri(settings.backend)
        return Found(settings, Target(uri, ()), (Member(uri, reason=error.message),), time.time(), raised())
    target, tls = backend.target, backend.tls
    members = await reached(target.seeds, tls, patience_seconds, alone=target.is_direct)
    found = Found(settings, target, members, time.time(), raised())
    return found if found.server is None else await _asked(found, found.server, backend, patience_seconds)


class Asking:
    """Commands to one server, with or without the login of the proxy's account."""

    def __init__(self, server: Member, backend: Backend, timeout_seconds: float) -> None:
        address = parse_upstream_name(server.address)

        async def primary(_: float) -> tuple[str, int]:
            return address

        def pool(authenticate: Authenticate) -> ServicePool:
            return ServicePool(primary, authenticate, backend.tls, timeout_seconds, CONNECTIONS)

        self.access = AccessControl(has_account=backend.authenticate is not None)
        self.stranger = pool(introducing(NAME, lambda _: None, None))
        self.account = pool(introducing(NAME, self.access.record_probe, backend.authenticate))

    async def run(self, pool: ServicePool, database: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """One command; raises ``CommandError``."""
        return decode(await self.run_raw(pool, database, body))

    async def run_raw(self, pool: ServicePool, database: str, body: Mapping[str, Any]) -> bytes:
        """As ``run``; the raw reply."""
        deadline_seconds = asyncio.get_running_loop().time() + STEP_SECONDS
        raw = await pool.request(encode({**body, "$db": database}), deadline_seconds)
        reply = decode(raw)
        if not reply.get("ok"):
            raise CommandError(int(reply.get("code", 1)), str(reply.get("errmsg", "")))
        return raw

    def close(self) -> None:
        """Disconnect."""
        self.stranger.close()
        self.account.close()


async def _asked(found: Found, server: Member, backend: Backend, timeout_seconds: float) -> Found:
    asking = Asking(server, backend, timeout_seconds)
    run = partial(asking.run, asking.account)
    try:
        build: Learned[Mapping[str, Any]] = await _known(asking.run(asking.stranger, "admin", {"buildInfo": 1}))
        status = await _known(asking.run_raw(asking.account, "admin", PRIVILEGES))
        if isinstance(status, Unknown):
            return replace(found, build=build, account=status)
        if isinstance(build, Unknown):
            build = await _known(run("admin", {"buildInfo": 1}))
        account = account_from(status, is_checked=asking.access.enforced)
        others = CurrentOperations(asking.account, NAME, account_of(status))
        return replace(
            found,
            build=build,
            account=account,
            feature_compatibility=await _known(_feature_compatibility(run("admin", dict(_FEATURES)))),
            has_timeseries=await _has_timeseries(server, build, run),
            is_closed=await _known(are_buckets_closed(run)),
            in_place_reason=await in_place_reason(found.settings, server, build, account),
            proxies=await _known(others.count_proxies()),
            collections=await _known(collections_of(run)),
        )
    finally:
        asking.close()


async def _known(question: Awaitable[T]) -> T | Unknown:
    try:
        return await question
    except CommandError as error:
        return Unknown(error.message, error.code, may_pass(error))
    except InvalidBSON:
        return Unknown("the reply is not valid")


def account_from(status: bytes, *, is_checked: bool) -> Account:
    """The account, from a raw reply to ``connectionStatus`` with privileges."""
    found, user = decode(status)["authInfo"], account_of(status)
    return Account(
        user=user,
        is_checked=is_checked,
        roles=tuple((str(role["role"]), str(role["db"])) for role in found.get("authenticatedUserRoles", ())),
        privileges=tuple(found.get("authenticatedUserPrivileges", ())),
    )


async def _has_timeseries(server: Member, build: Learned[Mapping[str, Any]], run: RunCommand) -> Learned[bool]:
    if build is None or isinstance(build, Unknown):
        return build
    try:
        return profile_of(server.hello or {}, build).has_native_timeseries and await unpacks_buckets(run)
    except CommandError as error:
        return Unknown(error.message, error.code, may_pass(error))


_FEATURES: Final[Mapping[str, Any]] = {"getParameter": 1, "featureCompatibilityVersion": 1}


async def _feature_compatibility(reply: Awaitable[Mapping[str, Any]]) -> str:
    return str((await reply)["featureCompatibilityVersion"]["version"])


@dataclass(frozen=True, slots=True)
class _Able:
    """What decides how buckets can grow, as it was found (``growth_policy.Able``)."""

    profile: Profile
    account: Account

    async def may_on_cluster(self, action: str) -> bool:
        return not self.account.is_checked or may_on_cluster(self.account.privileges, action)


async def in_place_reason(
    settings: Settings, server: Member, build: Learned[Mapping[str, Any]], account: Account
) -> Learned[str]:
    """Why the proxy would let buckets grow in place; ``""`` if it would not."""
    if settings.write_strategy in GROW_IN_PLACE:
        return f"write_strategy is {settings.write_strategy}"
    if build is None or isinstance(build, Unknown):
        return build
    try:
        able = _Able(profile_of(server.hello or {}, build), account)
        return await why_in_place(able, asks=settings.write_strategy == "auto") or ""
    except CommandError as error:
        return Unknown(error.message, error.code)
