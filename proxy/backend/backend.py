"""The backend, accessed with the proxy's own account: its address, capabilities and collections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from bson.timestamp import Timestamp
from pymongo import AsyncMongoClient
from pymongo.topology_description import TopologyDescription

from catalog.bson.codec import TOLERANT, encode
from catalog.errors import UNAUTHORIZED, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.backend import service_retry
from proxy.backend.access_probe import AccessProbe, WantedAccess
from proxy.backend.account_login import STATUS, AccountLogin
from proxy.backend.backend_tls import context_of
from proxy.backend.bucket_store import MongoBucketStore
from proxy.backend.collection_listing import CollectionListing
from proxy.backend.collection_store import NOTHING, CollectionStore
from proxy.backend.current_op import CurrentOperations, account_of, listener_text, process_name
from proxy.backend.driver_calls import DriverCalls, DriverClient, PrimarySearch
from proxy.backend.fences import Fences
from proxy.backend.least_role import missing_natively, missing_rights
from proxy.backend.member_watch import MemberWatch
from proxy.backend.namespace_registry import NamespaceRegistry
from proxy.backend.parts.part_store import PartStore
from proxy.backend.probing import profile_of, unpacks_buckets
from proxy.backend.row_search import RowSearch, time_of
from proxy.backend.server_cache import cache_share_bytes
from proxy.backend.service import OnAnswered, PoolFamily, ServicePool
from proxy.backend.service_auth import authenticator, introducing
from proxy.backend.service_connection import LOGIN_REFUSED
from proxy.backend.side_pools import SidePools
from proxy.backend.write_concern_waits import WriteConcernWaits
from proxy.backend.write_numbers import WriteNumbers
from proxy.observe.tasks import Spawn, TaskSet
from proxy.request.authorisation import AccessControl, is_unauthorized, may_on_cluster
from proxy.request.name_use import NameUse, name_use, names_of
from proxy.request.own_steps import client_message
from proxy.request.ports import Readers
from proxy.request.service_sessions import session_secret
from rewrite.profile import Profile

log = structlog.get_logger(__name__)

EXISTS_SECONDS = 2.0
"""Timeout of ``Backend.exists``, for which an insert waits."""

WAITS_AT_ONCE = 64
"""Maximum number of concurrent commands that only wait for replication."""


class Backend:
    """The service client and what depends on it; created by ``Backend.connect``."""

    def __init__(
        self,
        calls: DriverCalls,
        login: AccountLogin,
        probe: AccessProbe,
        hello: Mapping[str, Any],
        pool: ServicePool,
        registry: NamespaceRegistry,
        members: MemberWatch,
        others: CurrentOperations,
        waits: WriteConcernWaits | None,
        side: SidePools,
    ) -> None:
        self.waits = waits
        self._side = side
        self._calls = calls
        self.login = login
        self.members = members
        self.others = others
        self.probe = probe
        self._hello = hello
        self.pool = pool
        self.registry = registry
        pool.family.times.hear(hello)
        self.started: Timestamp | None = None
        """The backend's time before the first write of this process; ``None`` if it reports none."""
        self.told: dict[str, str] = {}
        """What service connections tell the backend of this process."""

    @classmethod
    async def connect(
        cls,
        uri: str,
        *,
        server_selection_timeout_seconds: float,
        connect_timeout_seconds: float,
        refresh_seconds: float,
        spawn: Spawn,
        timeseries_access: WantedAccess = "auto",
        answered: OnAnswered = lambda identifier, length, seconds: None,
    ) -> Backend:
        """Connect to the backend and probe it; raises ``BackendUnavailable`` or ``CommandError``.

        ``answered``: see ``ServicePool``.
        """
        patience_seconds = server_selection_timeout_seconds
        name = process_name()
        members = MemberWatch()
        calls = DriverCalls(partial(_client, uri, members, name, patience_seconds, connect_timeout_seconds))
        hello, profile = await cls._introduced(calls)
        # The driver has already parsed the URI's TLS options.
        tls = context_of(calls.client)
        access = AccessControl(has_account=authenticator(uri) is not None)
        told: dict[str, str] = {}
        family = PoolFamily()
        pool = ServicePool(
            PrimarySearch(calls, patience_seconds).find,
            introducing(name, access.record_probe, authenticator(uri), told, family.primary.greeted),
            tls,
            connect_timeout_seconds,
            answered=answered,
            family=family,
        )
        run = partial(_run, calls)
        login = AccountLogin(calls, run, pool)
        probe = AccessProbe(timeseries_access, run, login.privileges, access, profile)
        listing = CollectionListing(
            calls, run, probe.asked_privileges, lambda: login.is_lost, lambda: probe.profile.uses_buckets, probe.covers
        )
        loop = asyncio.get_running_loop()
        try:
            answer = await pool.request(STATUS, calls.deadline_seconds())
            await probe.look()
        except CommandError:
            pool.close()
            await calls.aclose()
            raise
        # These tasks end when the driver's client is closed: commits during shutdown may still need them.
        questions = TaskSet(lambda error: log.error("listing collections ended with an error", exc_info=error))
        registry = NamespaceRegistry(listing.collections, questions.spawn, loop.time, refresh_seconds)
        side = SidePools(pool)
        pool.family.secret = session_secret(uri)
        fences = _numbered(side.fences, profile, name, registry, probe)
        others = CurrentOperations(side.questions, name, account_of(answer), fences)
        waits = (
            WriteConcernWaits(pool.another(WAITS_AT_ONCE), spawn, patience_seconds) if profile.is_replica_set else None
        )
        backend = cls(calls, login, probe, hello, pool, registry, members, others, waits, side)
        backend.started, backend.told = time_of(answer), told
        return backend

    @staticmethod
    async def _introduced(calls: DriverCalls) -> tuple[dict[str, Any], Profile]:
        """What the backend says of itself; closes ``calls`` if it does not answer."""
        try:
            hello = await calls.ask(lambda client: client.admin.command("hello"))
            build = await calls.ask(lambda client: client.admin.command("buildInfo"))
            profile = profile_of(hello, build)
            if profile.has_native_timeseries:
                profile = replace(profile, unpacks_buckets=await unpacks_buckets(partial(_run, calls)))
        except BaseException:
            await calls.aclose()
            raise
        log.debug("the backend has answered", version=build.get("version"), set_name=hello.get("setName", ""))
        return hello, profile

    def expect_fences(
        self, met: Callable[[], None], must_have: Callable[[], bool], forgotten: Callable[[], None]
    ) -> None:
        """``met`` is called if another process has taken over what this one had sent.

        While ``must_have``, only writes are sent that fences can keep out. ``forgotten`` is called when the backend may
        have forgotten all fences.
        """
        family = self.pool.family
        if family.numbers is not None:
            family.numbers.on_fence, family.numbers.must_have_fences = met, must_have
            family.primary.on_change = forgotten

    async def cache_share_bytes(self) -> int:
        """How much of the backend's cache open buckets may fill; 0 if unknown."""
        return await cache_share_bytes(self.pool.request, self._calls.deadline_seconds())

    @property
    def profile(self) -> Profile:
        """The capabilities of the backend, and how its time-series collections are read and written."""
        return self.probe.profile

    @property
    def access(self) -> AccessControl:
        """Whether there is access control."""
        return self.probe.access

    def bucket_store(
        self,
        max_count: int,
        alone: Callable[[], bool],
        readers: Readers | None,
    ) -> MongoBucketStore:
        """The implementation of ``catalog.ports.BucketStore``; ``max_count`` is the row limit of a bucket.

        ``alone``: see ``PartStore``. ``readers``: see ``MongoBucketStore``.
        """

        async def resolve(collection: VirtualCollection) -> VirtualCollection | None:
            return await self.registry.resolve_anew(collection.namespace)

        return MongoBucketStore(
            self.pool,
            self._calls,
            resolve,
            sends_uuid=self.profile.has_collection_uuid,
            max_count=max_count,
            parts=PartStore(self.pool, transactions=self.profile.is_replica_set, alone=alone),
            rows=self._row_search(on_buckets=True),
            waits=self.waits,
            readers=readers,
            closed=self.probe.buckets_closed,
        )

    def _row_search(self, *, on_buckets: bool) -> RowSearch:
        return RowSearch(self._side.searches, self.started, self._side.search_places, on_buckets=on_buckets)

    def collection_store(self) -> CollectionStore:
        """What inserts into time-series collections by public commands."""
        return CollectionStore(
            self.pool,
            self._row_search(on_buckets=False),
            self.waits,
        )

    async def announce(self, port: int, *, has_tls: bool, is_local: bool) -> None:
        """Tell the backend where this process listens for other proxies; raises ``CommandError``."""
        self.told["platform"] = listener_text(port, has_tls=has_tls, is_local=is_local)
        # A new connection tells it.
        self.pool.forget_primary()
        await self.pool.request(encode({"ping": 1, "$db": "admin"}), self._calls.deadline_seconds())

    async def exists(self, namespace: Namespace) -> bool:
        """Whether there is a collection or view of this name; raises ``CommandError``."""
        return bool(await self._listed(namespace.database, [namespace.collection]))

    async def name_use(self, namespace: Namespace) -> NameUse:
        """What this name stands for; raises ``CommandError``."""
        return name_use(namespace, await self._listed(namespace.database, names_of(namespace)))

    async def _listed(self, database: str, names: list[str]) -> list[Mapping[str, Any]]:
        """Names and types of the collections and views among ``names``."""
        body = {"listCollections": 1, "filter": {"name": {"$in": names}}, "nameOnly": True}

        async def request(client: DriverClient) -> dict[str, Any]:
            return dict(await client.get_database(database).command(body, codec_options=TOLERANT))

        reply = await self._calls.ask(request, EXISTS_SECONDS)
        return list(reply["cursor"]["firstBatch"])

    async def may_on_cluster(self, action: str) -> bool:
        """Whether the account has this privilege on the cluster; raises ``CommandError``."""
        privileges = await self.probe.asked_privileges()
        return privileges is None or may_on_cluster(privileges, action)

    async def missing_rights(self) -> list[str]:
        """The privileges that the account lacks for the access in use; raises ``CommandError``.

        A server without time-series collections has no such privileges, and the account does nothing there.
        """
        await self.probe.look()
        privileges = self.probe.privileges
        if privileges is None or not self.profile.has_native_timeseries:
            return []
        return missing_rights(privileges) if self.profile.uses_buckets else missing_natively(privileges)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context for connections to the backend; ``None`` without TLS."""
        return self.pool.tls

    def tls_contexts(self) -> list[ssl.SSLContext]:
        """The TLS contexts in use. They may differ, because the driver's client may have been replaced."""
        found = {id(each): each for each in (self.tls, context_of(self._calls.client)) if each is not None}
        return list(found.values())

    @property
    def topology(self) -> Callable[[], TopologyDescription] | None:
        """The state of the replica set; ``None`` for a single server or a sharded cluster."""
        return (lambda: self._calls.client.topology_description) if self.profile.is_replica_set else None

    @property
    def hello(self) -> Mapping[str, Any]:
        """The backend's reply to ``hello``, with the latest cluster times that it has told since."""
        return {**self._hello, **self.pool.family.times.told}

    def cluster_times(self) -> bytes:
        """The latest that the backend has told, as raw elements; empty if the server is alone."""
        return self.pool.family.times.elements()

    async def run_raw(self, database: str, body: Mapping[str, Any]) -> bytes:
        """Run one command over a service connection; returns the raw reply, also an error reply.

        Raises ``BackendUnavailable``, or ``CommandError`` 13 if the proxy's account is not authorised.
        """
        body = {**body, "$db": database}
        reply = await service_retry.request(self._side.steps, body, self._calls.deadline_seconds())
        if is_unauthorized(reply):
            raise CommandError(UNAUTHORIZED, client_message(UNAUTHORIZED, "", holds_data=True))
        return reply

    async def primary_address(self) -> tuple[str, int]:
        """Host and port of the server that accepts writes; raises ``BackendUnavailable``."""
        return await self.pool.find_primary(self._calls.patience_seconds)

    async def health(self, timeout_seconds: float) -> tuple[str, int | None] | None:
        """The primary of a replica set, if it has one; raises ``CommandError`` if the backend does not respond."""

        async def request(client: DriverClient) -> tuple[dict[str, Any], tuple[str, int | None] | None]:
            reply = await client.admin.command("ping")
            return reply, await client.primary if self.profile.is_replica_set else None

        try:
            reply, primary = await self._calls.ask(request, timeout_seconds)
        except CommandError as error:
            if error.code not in LOGIN_REFUSED:
                raise
            # It does respond.
            self.login.doubted.set()
            return None
        self.pool.family.times.hear(reply)
        return primary

    async def close(self) -> None:
        """Close every connection."""
        self.pool.close()
        self._side.close()
        if self.waits is not None:
            self.waits.close()
        await self._calls.aclose()


def _client(
    uri: str,
    members: MemberWatch,
    name: str,
    server_selection_timeout_seconds: float,
    connect_timeout_seconds: float,
) -> DriverClient:
    return AsyncMongoClient(
        uri,
        event_listeners=[members],
        serverSelectionTimeoutMS=int(server_selection_timeout_seconds * 1000),
        connectTimeoutMS=int(connect_timeout_seconds * 1000),
        appname=name,
        retryWrites=False,
    )


async def _run(calls: DriverCalls, database: str, body: dict[str, Any]) -> dict[str, Any]:
    def request(client: DriverClient) -> Awaitable[dict[str, Any]]:
        return client.get_database(database).command(body, codec_options=TOLERANT)

    return dict(await calls.ask(request))


def _numbered(
    pool: ServicePool, profile: Profile, name: str, registry: NamespaceRegistry, probe: AccessProbe
) -> Fences | None:
    """Number the writes of the process with this name, where the backend takes numbers; the fences of others.

    A ``mongos`` would send those to one of many servers.
    """
    if profile.is_replica_set or profile.is_mongos:
        pool.family.numbers = WriteNumbers(pool.family.secret, name)
    return Fences(pool, pool.family.secret, partial(_fence_places, registry, probe)) if profile.is_replica_set else None


def _fence_places(registry: NamespaceRegistry, probe: AccessProbe) -> Iterator[Namespace]:
    """Collections from which the account may delete if it writes measurements at all."""
    for collection in registry.known():
        is_on_buckets = probe.profile.uses_buckets
        yield collection.buckets if is_on_buckets else Namespace(collection.namespace.database, NOTHING)
