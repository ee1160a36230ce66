"""Two processes of the proxy, as parts of this one, link over a real server and answer one another (W102)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from catalog.errors import CommandError
from catalog.identity import NOBODY
from catalog.namespaces import Namespace
from proxy.inserts.coalescing import WHOLE_ALONE_DOCUMENTS
from proxy.observe.metrics import Metrics
from proxy.observe.tasks import TaskSet
from proxy.peers.handshake import Introduction, key_of
from proxy.peers.link import GREETING_SECONDS, Link
from proxy.peers.strangers import MOST_STRANGERS
from proxy.process.assembly import assemble
from proxy.process.peering import Peering, is_loopback, now_seconds
from proxy.request.service_sessions import session_secret
from proxy.settings.config import ConfigurationError
from proxy.settings.table import Address, Settings
from tests.support.certificates import Certificates
from tests.support.eventually import eventually
from tests.support.mongod import MongodProcess
from tests.support.ports import free_port

CLIENT = (b"session", NOBODY)


class Part:
    """One process: its components, and what links it."""

    def __init__(self, assembly: Any, peering: Peering | None, metrics: Metrics) -> None:
        self.assembly = assembly
        self.ingest, self.committer, self.log = assembly.ingest, assembly.committer, assembly.ingest.statements
        self.peering = peering
        self.metrics = metrics

    @property
    def linked(self) -> list[bool]:
        assert self.peering is not None
        return [each["linked"] and each["linksBack"] for each in self.peering.shown().values()]

    async def asked(self, number: int) -> CommandError | None:
        went_on: list[CommandError | None] = []
        self.ingest.peer_statements.ask(CLIENT, number, went_on.append)
        await eventually(lambda: went_on)
        return went_on[0]


@asynccontextmanager
async def part(settings: Settings) -> AsyncIterator[Part]:
    errors: list[BaseException] = []
    tasks, metrics = TaskSet(errors.append), Metrics(CollectorRegistry())
    assembly = await assemble(settings, metrics, tasks.spawn, errors.append)
    peering = None
    try:
        peering = await Peering.begin(settings, assembly, metrics, tasks, errors.append)
        yield Part(assembly, peering, metrics)
    finally:
        await tasks.close()
        await assembly.close(1.0)
        if peering is not None:
            peering.close()
    assert errors == []


@pytest.fixture
def settings(replica_set: MongodProcess) -> Settings:
    return Settings(backend=replica_set.uri, listen=Address("127.0.0.1", 0))


async def test_two_processes_link_ask_and_part(settings: Settings) -> None:
    async with part(settings) as one:
        async with part(settings) as two:
            await eventually(lambda: True in one.linked and True in two.linked)
            assert two.ingest.peer_statements.concerns(CLIENT, 5)
            one.log.transaction(CLIENT, 5).learn([(0, 3)], [], is_native=False, is_sought=False)
            assert await two.asked(5) is None
            assert 2 in two.log.transaction(CLIENT, 5).written
            assert one.ingest.peer_statements.concerns(CLIENT, 6)
            # Another test's process may link with this one now, or a ping be late: sessions have to be asked for again.
            async with asyncio.timeout(60):
                while two.ingest.peer_statements.concerns(CLIENT, 6):
                    assert await two.asked(5) is None
            assert one.committer.reclaiming.ownership is one.ingest.peer_statements
            samples = {each.name: each.value for metric in two.metrics.collect() for each in metric.samples}
            assert samples["tsproxy_peer_doubles_prevented_total"] == 1
            assert samples["tsproxy_peers_linked"] >= 1
            name = two.peering.membership.own_name if two.peering is not None else ""
            assert one.peering is not None
            assert name in one.peering.shown()
        await eventually(lambda: name not in one.peering.shown())
        assert one.peering.membership.are_lately_gone
        assert await one.asked(6) is None
        assert one.log.transaction(CLIENT, 6).is_sought


async def test_with_tls_the_link_has_it_too(settings: Settings, tmp_path: Path) -> None:
    files = Certificates.make(tmp_path)
    secured = replace(settings, tls_certificate_file=files.server, tls_key_file=files.server)
    async with part(secured) as one, part(secured) as two:
        await eventually(lambda: True in one.linked and True in two.linked)
        assert one.peering is not None
        assert two.peering is not None
        # Proxies of other tests may be at the same server.
        name = one.peering.membership.own_name
        await eventually(lambda: two.peering.shown().get(name, {}).get("linked"))  # type: ignore[union-attr]
        port = two.peering.shown()[name]["peerPort"]
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context())


async def test_an_address_in_use_is_replaced_and_one_that_is_not_here_refused(settings: Settings) -> None:
    wanted = replace(settings, peer_listen=Address("127.0.0.1", free_port()))
    async with part(wanted) as one, part(wanted) as two:
        await eventually(lambda: True in one.linked and True in two.linked)
    with pytest.raises(ConfigurationError, match="peer_listen"):
        async with part(replace(settings, peer_listen=Address("192.0.2.1", 0))):
            pass


@pytest.mark.parametrize("has_tls", [False, True])
async def test_who_says_nothing_is_disconnected_with_the_others(
    has_tls: bool, settings: Settings, tmp_path: Path
) -> None:
    """And at most MOST_STRANGERS are kept, TLS handshakes in progress included; a proxy can connect beside them."""
    if has_tls:
        files = Certificates.make(tmp_path)
        settings = replace(settings, tls_certificate_file=files.server, tls_key_file=files.server)
    async with part(settings) as one, AsyncExitStack() as stack:
        assert one.peering is not None
        name = one.peering.membership.own_name
        async with part(settings) as two:
            assert two.peering is not None
            await eventually(lambda: two.peering.shown().get(name, {}).get("linked"))  # type: ignore[union-attr]
            port = two.peering.shown()[name]["peerPort"]
        said: list[asyncio.Task[bytes]] = []
        for _ in range(MOST_STRANGERS + 2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            said.append(asyncio.create_task(reader.read()))
        async with asyncio.timeout(GREETING_SECONDS / 2):
            assert await asyncio.gather(*said[:2]) == [b"", b""]
        assert not any(each.done() for each in said[2:])
        async with part(settings) as two:
            await eventually(lambda: True in one.linked and True in two.linked)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        stack.callback(writer.close)
        one.peering.close()
        async with asyncio.timeout(GREETING_SECONDS / 2):
            assert await asyncio.gather(*said) == [b""] * len(said)


async def test_as_many_strangers_as_are_allowed_are_all_kept(settings: Settings) -> None:
    """None counts twice, as a handshake and as a connection, also if they come at once."""
    port = free_port()
    wanted = replace(settings, peer_listen=Address("127.0.0.1", port))
    async with part(wanted), AsyncExitStack() as stack:
        strangers = []
        for _ in range(MOST_STRANGERS):
            # The event loop does not run meanwhile.
            strangers.append(socket.create_connection(("127.0.0.1", port), 5, ("127.0.0.2", 0)))
            stack.callback(strangers[-1].close)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        stack.callback(writer.close)
        # It was accepted after all of them, and is the one too many.
        await eventually(lambda: has_ended(strangers[0]))
        await asyncio.sleep(0.2)
        ended = sum(map(has_ended, strangers[1:]))
        # Proxies of other tests may be at the same server, and link at this moment.
        assert ended <= 2, ended


def has_ended(client: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize("has_tls", [False, True])
async def test_a_connection_has_little_time_to_prove_who_it_is(
    has_tls: bool, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("proxy.process.peering", "proxy.peers.link"):
        monkeypatch.setattr(f"{module}.GREETING_SECONDS", 0.5)
    if has_tls:
        files = Certificates.make(tmp_path)
        settings = replace(settings, tls_certificate_file=files.server, tls_key_file=files.server)
    port = free_port()
    async with part(replace(settings, peer_listen=Address("127.0.0.1", port))), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()


async def test_linked_processes_are_bounded_too(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without access control, whoever reaches the address can prove to be a process."""
    monkeypatch.setattr("proxy.process.peering.MOST_LINKED", 3)
    port = free_port()
    async with part(replace(settings, peer_listen=Address("127.0.0.1", port))) as one, asyncio.timeout(10):
        assert one.peering is not None
        key = key_of(session_secret(settings.backend or ""))
        links: list[Link] = []
        for number in range(5):
            own = Introduction(f"tsproxy pretended {number}", 1)
            _, link = await asyncio.get_running_loop().create_connection(
                lambda own=own: Link(own, key, ""), "127.0.0.1", port
            )
            links.append(link)
            await link.introduce()
        await eventually(lambda: not links[-1].is_open)
        assert sum(each.is_open for each in links) <= 3
        assert "tsproxy pretended 4" not in one.peering.membership.peers
        for each in links:
            each.close()


async def test_commands_of_coalesced_inserts_are_larger_if_others_send_theirs(mongod: MongodProcess) -> None:
    settings = Settings(backend=mongod.uri, listen=Address("127.0.0.1", 0))
    async with part(settings) as one, part(settings) as two:
        for each in (one, two):
            coalescer = each.assembly.access_mode.coalescer
            await eventually(lambda coalescer=coalescer: coalescer.whole_documents >= 2 * WHOLE_ALONE_DOCUMENTS)


async def test_without_retryable_writes_and_parts_they_link_to_tell_of_changes(mongod: MongodProcess) -> None:
    settings = Settings(backend=mongod.uri, listen=Address("127.0.0.1", 0), write_strategy="in_place")
    async with part(settings) as one, part(settings) as two:
        await eventually(lambda: True in one.linked and True in two.linked)
        assert one.ingest.peer_statements is None, "nobody retries inserts"


@pytest.mark.parametrize("topology", ["mongod", "replica_set"])
async def test_readers_of_one_process_wait_for_joins_of_the_other(
    topology: str, request: pytest.FixtureRequest
) -> None:
    """On a standalone, too, where no statement is asked about."""
    server: MongodProcess = request.getfixturevalue(topology)
    settings = Settings(backend=server.uri, listen=Address("127.0.0.1", 0), write_strategy="in_parts")
    async with part(settings) as one, part(settings) as two:
        first, second = one.assembly.in_parts, two.assembly.in_parts
        assert two.peering is not None
        name = two.peering.membership.own_name
        await eventually(lambda: name in first.elsewhere.names())
        assert (two.ingest.peer_statements is None) is (topology == "mongod")
        is_alone = False
        while not is_alone:
            # Another test's process at this server may not answer in time.
            async with first.readers.kept_out(Namespace("db", "x")) as is_alone:
                if is_alone:
                    assert second.readers.active.keeps_out("db")
                    assert not second.readers.active.keeps_out("other")
                    waiting = asyncio.ensure_future(second.readers.active.admitted("db"))
                    await asyncio.sleep(0.05)
                    assert not waiting.done()
            await asyncio.sleep(0.1)
        await asyncio.wait_for(waiting, 10)
        second.readers.active.enter("db")
        async with first.readers.kept_out(Namespace("db", "x")) as alone:
            assert not alone, "somebody reads through the other process"
        second.readers.active.leave("db")
        assert one.peering is not None
        assert one.peering.numbers.holds > one.peering.numbers.holds_refused > 0
        assert two.peering.numbers.held_for_others > 0


async def test_without_parts_a_process_does_not_keep_readers_waiting(settings: Settings) -> None:
    async with part(settings) as one, part(replace(settings, write_strategy="in_place")) as two:
        await eventually(lambda: True in one.linked and True in two.linked)
        assert two.peering is not None
        name = two.peering.membership.own_name
        assert one.peering is not None
        await eventually(lambda: one.peering.shown().get(name, {}).get("linked"))  # type: ignore[union-attr]
        assert name not in one.assembly.in_parts.elsewhere.names()
        assert one.peering.shown()[name]["keepsReaders"] is False


async def test_a_backend_that_cannot_be_told_is_no_reason_to_stop(settings: Settings) -> None:
    async with part(settings) as one:
        assert one.peering is not None

        async def fails(port: int, *, has_tls: bool, is_local: bool) -> None:
            raise CommandError(6, "unreachable")

        assembly = one.assembly
        told = assembly.backend
        backend = SimpleNamespace(
            announce=fails,
            others=told.others,
            pool=told.pool,
            expect_fences=told.expect_fences,
            profile=told.profile,
            health=told.health,
        )
        errors: list[BaseException] = []
        tasks = TaskSet(errors.append)
        another = await Peering.begin(settings, replace(assembly, backend=backend), one.metrics, tasks, errors.append)
        assert another is not None
        another.close()
        await tasks.close()
        assert errors == []
    assert now_seconds() > 0


def test_loopback_addresses() -> None:
    hosts = ("127.0.0.1", "127.1.2.3", "::1", "localhost", "0.0.0.0", "10.0.0.1", "a.example")
    assert [is_loopback(host) for host in hosts] == [True, True, True, True, False, False, False]
