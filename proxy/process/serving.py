"""Serves clients, from connecting to the backend until the last client has disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from catalog.background.replacing import Differs
from catalog.errors import BackendUnavailable, CommandError
from proxy.admin.catalog_views import CatalogViews, Open
from proxy.admin.closing import Closing
from proxy.admin.handler import Action
from proxy.backend.first_answer import first_answer
from proxy.backend.probing import CONSEQUENCE, TIMESERIES_REMEDY, WITHOUT_TIMESERIES, without_timeseries
from proxy.clients.administration import AdminParts
from proxy.clients.new_collections import NewCollections
from proxy.clients.server import Parts, Server
from proxy.clients.tls import ListenerTls, Newest, TlsOptions
from proxy.members.joins_applied import JoinsApplied
from proxy.observe.loop_watch import LoopWatch
from proxy.observe.metrics import Metrics
from proxy.observe.tasks import TaskSet
from proxy.process.account_check import AccountCheck
from proxy.process.assembly import Assembly, assemble, follow_settings
from proxy.process.control import Control, WorkerPlace
from proxy.process.exit_codes import cannot_listen
from proxy.process.patience import until_reached
from proxy.process.peering import Peering
from proxy.process.process_actions import ProcessActions
from proxy.process.sockets import Sockets
from proxy.process.status_page import serving_of
from proxy.process.unreachable import account_of, unreachable
from proxy.reads.inline_reads import InlineReads
from proxy.request.recognition import memory
from proxy.settings.config import Address, Settings
from proxy.settings.reload import with_reloadable
from proxy.upstream.dialing import upstream_name
from rewrite.profile import Profile

if TYPE_CHECKING:
    # Imported by who switches it on: its packages may be missing.
    from proxy.observe.tracing import Tracing

log = structlog.get_logger(__name__)

HEALTH_CHECK_SECONDS = 2.0
"""Interval of the health checks of the backend, for /readyz and the metrics."""

FIRST_ANSWER_SECONDS = 5.0
"""Time for one attempt to reach the backend at startup."""

COMMIT_SECONDS = 0.5
"""Time that commits get at a stop after the grace period; they may be of clients that were disconnected."""
FLUSH_SECONDS = 1.0
"""Time that the export of spans gets at a stop after the grace period."""


async def serve(
    settings: Settings,
    metrics: Metrics,
    stop: asyncio.Event,
    on_ready: Callable[[Address], None],
    on_waiting: Callable[[str], None] = lambda reason: None,
    control: Control | None = None,
    tracing: Tracing | None = None,
    sockets: Sockets | None = None,
) -> None:
    """Serve until ``stop`` is set; ``on_ready`` is called with the address when clients can connect.

    Components follow ``control.reloading``, without which settings stay as they are. ``tracing`` is closed at the end.
    ``sockets``: bound ones to listen on, instead of the addresses of the settings.

    A backend that cannot be reached is waited for, unless ``fail_fast`` is set; ``on_waiting`` gets the reason, and
    later the privileges that the account lacks, an empty text if none.

    Raises ``ConfigurationError`` for invalid certificate files, an address that cannot be listened on, and rules that
    the backend does not support, ``BackendUnavailable`` or ``CommandError`` if the backend cannot be used.
    """
    tls = ListenerTls(options) if (options := TlsOptions.of(settings)) is not None else None
    tasks = TaskSet(lambda error: _report(metrics, error))
    assembly = await _assembled(settings, metrics, tasks, on_waiting, tracing)
    lacks = _warned_of(assembly.backend.profile)
    backend, name = assembly.backend, "@".join(account_of(settings.backend or ""))
    account = AccountCheck(name, backend.missing_rights, backend.login.doubted, on_waiting)
    metrics.backend_up = True
    worker = control.worker if control is not None else None
    server = Server(settings, _parts(assembly, metrics, tasks, worker))
    assembly.access_mode.begin(server, assembly.translate.commands)

    def follow(newer: Settings) -> None:
        follow_settings(assembly, newer)
        server.follow(with_reloadable(settings, newer))
        if tls is not None:
            tls.reload(TlsOptions.of(with_reloadable(settings, newer)))

    if control is not None:
        control.reloading.follow(follow)
        _tell(control, assembly, server, lacks)
    peering: Peering | None = None
    try:
        with suppress(BackendUnavailable):
            await account.look(insists=settings.fail_fast)
        # Before clients are served, so that every process knows all others that have sessions.
        peering = await Peering.begin(settings, assembly, metrics, tasks, partial(_report, metrics))
        address = await _listen(server, settings, tls.newest if tls is not None else None, sockets, worker)
        _show(server, assembly, metrics, address, settings, control, peering)
        if tls is not None:
            tasks.keep(tls.watch)
        for work in (*_background(assembly, metrics, server), account.watch):
            tasks.keep(work)
        on_waiting(account.trouble)
        on_ready(address)
        await stop.wait()
    finally:
        await _stop(server, tasks, assembly, tracing, sockets, worker, peering)


def _show(
    server: Server,
    assembly: Assembly,
    metrics: Metrics,
    address: Address,
    settings: Settings,
    control: Control | None,
    peering: Peering | None,
) -> None:
    """Let administrators, the status page and spans see what serves at this address."""
    server.admin.add(_actions(server, assembly))
    if assembly.spans is not None:
        assembly.spans.listens_on(address.host, address.port)
    if control is not None:
        peers = dict if peering is None else peering.shown
        actions = ProcessActions(control, metrics, assembly, address, server.admin.traffic.status, peers)
        server.admin.add(actions.actions)
        control.on_serving(serving_of(assembly, settings, server.admin.traffic.brief))


def _tell(control: Control, assembly: Assembly, server: Server, lacks: str) -> None:
    """What the process shows of its server."""
    control.knows(lacks, assembly.access_mode.sentence, lambda: server.admin.traffic.why_not_ready)


def _warned_of(profile: Profile) -> str:
    """What does not work with this backend, in one sentence; logs it."""
    lacks = without_timeseries(profile)
    if lacks:
        log.warning(
            WITHOUT_TIMESERIES, version=profile.shown_version, consequence=CONSEQUENCE, remedy=TIMESERIES_REMEDY
        )
    return lacks


def _background(
    assembly: Assembly, metrics: Metrics, server: Server
) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
    """What runs as long as clients are served."""
    yield LoopWatch(metrics.held).run
    yield partial(_watch_backend, assembly, metrics, server)
    yield assembly.backend_files.watch
    if assembly.in_parts is not None:
        yield from assembly.in_parts.work()
    if assembly.compressing is not None:
        yield assembly.compressing.run


async def _listen(
    server: Server,
    settings: Settings,
    tls: Newest | None,
    sockets: Sockets | None,
    worker: WorkerPlace | None,
) -> Address:
    """Open the listeners; returns the address for clients."""
    board = None
    if worker is not None:
        board = worker.board
        worker.on_serving(server.admin.handler.here, server.hello.interrupt)
    try:
        address = Address(*await server.start(tls, sockets.clients if sockets is not None else (), board))
    except OSError as error:
        raise cannot_listen("listen", settings.listen, error) from None
    admin_sockets = sockets.admin if sockets is not None else ()
    if settings.admin_listen is not None:
        try:
            await server.start_admin(settings.admin_listen, tls, admin_sockets)
        except OSError as error:
            raise cannot_listen("admin_listen", settings.admin_listen, error) from None
    return address


def _actions(server: Server, assembly: Assembly) -> Mapping[str, Action]:
    """The admin commands about collections and buckets."""
    catalog, known = assembly.catalog, assembly.backend.registry
    opened = Open(catalog, known, server.admin.rights)
    closing = Closing(catalog, opened, assembly.committer.kick, assembly.backend.run_raw)
    return {**CatalogViews(catalog, known, opened).actions, **closing.actions}


async def _probe(assembly: Assembly) -> None:
    await assembly.backend.health(HEALTH_CHECK_SECONDS)


async def _assembled(
    settings: Settings,
    metrics: Metrics,
    tasks: TaskSet,
    on_waiting: Callable[[str], None],
    tracing: Tracing | None,
) -> Assembly:
    uri, timeout_seconds = settings.backend or "", settings.server_selection_timeout_ms / 1000

    async def attempt() -> Assembly:
        # The reason for waiting is known soon, however long clients may be kept waiting later.
        await first_answer(uri, timeout_seconds if settings.fail_fast else min(timeout_seconds, FIRST_ANSWER_SECONDS))
        return await assemble(settings, metrics, tasks.spawn, lambda error: _report(metrics, error), tracing)

    def waiting(error: CommandError) -> str:
        reason = unreachable(uri, error).message
        on_waiting(reason)
        return reason

    return await attempt() if settings.fail_fast else await until_reached(attempt, waiting)


async def _stop(
    server: Server,
    tasks: TaskSet,
    assembly: Assembly,
    tracing: Tracing | None,
    sockets: Sockets | None,
    worker: WorkerPlace | None,
    peering: Peering | None,
) -> None:
    """Stop within the grace period, whatever the backend does, and the little time that closing takes."""
    now_seconds = asyncio.get_running_loop().time
    until_seconds = now_seconds() + server.settings.shutdown_grace_seconds
    try:
        takes_queue = sockets is None or not sockets.others_accept()
        await server.stop(worker.on_closed if worker is not None else lambda: None, takes_queue=takes_queue)
        await tasks.close()
    finally:
        await assembly.close(max(until_seconds - now_seconds(), COMMIT_SECONDS))
        # Others can ask until everything is written.
        if peering is not None:
            peering.close()
        if tracing is not None:
            await tracing.close(max(until_seconds - now_seconds(), FLUSH_SECONDS))


def _parts(assembly: Assembly, metrics: Metrics, tasks: TaskSet, worker: WorkerPlace | None) -> Parts:
    remembered = memory()
    return Parts(
        backend=assembly.backend,
        numbers=metrics,
        connections=metrics.connections,
        tls_to_backend=assembly.backend.tls,
        namespaces=assembly.backend.registry,
        ingest=assembly.ingest,
        translate=assembly.translate,
        inline_reads=InlineReads(assembly.translate, remembered),
        memory=remembered,
        translated=assembly.translate.commands,
        knows_cursor=assembly.translate.takes_cursor,
        effects=assembly.effects,
        gate=assembly.authorisation,
        on_step_down=assembly.backend.pool.forget_primary,
        topology=assembly.backend.topology,
        joins_applied=_joins_applied(assembly),
        new_collections=_new_collections(assembly, tasks),
        slow=assembly.slow.threshold if assembly.spans is None else assembly.spans.watch,
        limits=assembly.limits,
        connection_ids=worker.connection_ids() if worker is not None else None,
        requires_login=lambda: assembly.backend.access.enforced,
        readers=assembly.readers,
        admin=AdminParts(
            assembly.authorisation,
            assembly.ingest.uncommitted,
            partial(_probe, assembly),
            worker.workers if worker is not None else None,
        ),
    )


def _joins_applied(assembly: Assembly) -> JoinsApplied | None:
    in_parts = assembly.in_parts
    return None if in_parts is None else JoinsApplied(in_parts.readers.joins, assembly.backend.run_raw)


def _new_collections(assembly: Assembly, tasks: TaskSet) -> NewCollections | None:
    """``None`` if every collection is an ordinary one."""
    if not assembly.backend.profile.has_native_timeseries:
        return None
    return NewCollections(assembly.backend.exists, tasks.spawn, assembly.slow.record, assembly.ruled)


async def _watch_backend(assembly: Assembly, metrics: Metrics, server: Server) -> None:
    is_replica_set = assembly.backend.profile.is_replica_set
    changed = asyncio.Event()

    def member_changed(address: str, is_primary: bool) -> None:
        changed.set()
        if is_replica_set and not is_primary:
            server.not_primary_reported(address)

    assembly.backend.members.follow(member_changed)
    while True:
        try:
            primary = await assembly.backend.health(HEALTH_CHECK_SECONDS * 2)
            up = True
            if primary is not None:
                server.primary_is(upstream_name(*primary))
        except CommandError as error:
            up = False
            if metrics.backend_up:
                log.warning("the backend is not reachable", reason=error.message)
        if up and not metrics.backend_up:
            log.info("the backend is reachable again")
        metrics.backend_up = up
        with suppress(TimeoutError):
            async with asyncio.timeout(HEALTH_CHECK_SECONDS):
                await changed.wait()
        changed.clear()


def _report(metrics: Metrics, error: BaseException) -> None:
    metrics.invariant_violations += 1
    if isinstance(error, Differs):
        # No traceback: what is wrong was found in what somebody stored.
        log.error("the new form of stored measurements is wrong, keeping the stored one", reason=str(error))
        return
    log.error("a task ended with an error", exc_info=error)
