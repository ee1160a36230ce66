"""Creates and connects the components of one proxy process; the only place that knows all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

import structlog

from catalog.background.compressing import Compressing, CompressingMetrics
from catalog.background.join_step import JoiningMetrics
from catalog.background.joining_pace import JoiningOptions
from catalog.buckets.stats import counters_document
from catalog.catalog import BucketCatalog
from catalog.commit.committer import Committer
from catalog.commit.statements import StatementLog
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import Clock
from catalog.write_costs import WriteCosts
from proxy.backend.backend import Backend
from proxy.backend.backend_tls import BackendFiles
from proxy.backend.namespace_registry import NamespaceRegistry
from proxy.clients.ruled_creation import RuledCreation
from proxy.inserts.ingest import InsertHandler
from proxy.inserts.insert_rates import InsertRates
from proxy.inserts.paced_replies import PacedReplies
from proxy.inserts.write_strategy import Mode, WriteStrategy
from proxy.observe.compression_time import Spent, TimedForms
from proxy.observe.metrics import CatalogReadings, Metrics
from proxy.observe.spans import Tracer
from proxy.observe.tasks import Spawn
from proxy.process.access_mode import AccessMode, about
from proxy.process.catalog_effects import CatalogEffects
from proxy.process.component_options import catalog_options, committer_options, compresses, compressing_options
from proxy.process.growth_policy import InParts, growth_of, is_alone, readers_of
from proxy.process.process_ids import ProcessIds
from proxy.process.traced import traced
from proxy.readers.bucket_cursors import BucketCursors
from proxy.reads.cursor_names import CursorNames
from proxy.reads.plan_environment import PlanEnvironment
from proxy.reads.translate import TranslateHandler
from proxy.request.authorisation import Authorisation
from proxy.request.command_spans import CommandSpans
from proxy.request.limited import LimitBook
from proxy.request.ports import Readers
from proxy.request.router import Unresolved
from proxy.request.service_sessions import ServiceSessions
from proxy.request.slow_commands import SlowCommands
from proxy.settings.collection_rules import parse_rules, unsupported
from proxy.settings.config import ConfigurationError
from proxy.settings.table import Settings
from rewrite.commands.list_collections import HIDING_BUCKETS
from rewrite.plan import Rewriter
from rewrite.registry import REWRITERS

log = structlog.get_logger(__name__)


class LoopClock:
    """The monotonic time of the running event loop."""

    def __init__(self) -> None:
        # Every measurement looks at it, so there is no method of our own in between.
        self.monotonic_seconds = asyncio.get_running_loop().time


@dataclass(frozen=True, slots=True)
class Assembly:
    """The components that the network side uses."""

    backend: Backend
    catalog: BucketCatalog
    committer: Committer
    ingest: InsertHandler
    translate: TranslateHandler
    effects: CatalogEffects
    cursors: CursorNames
    authorisation: Authorisation
    readers: Readers
    in_parts: InParts | None
    compressing: Compressing | None
    slow: SlowCommands
    spans: CommandSpans | None
    ruled: RuledCreation | None
    limits: LimitBook
    access_mode: AccessMode
    ids: ProcessIds
    backend_files: BackendFiles

    async def close(self, patience_seconds: float) -> None:
        """Complete commits and join parts as far as ``patience_seconds`` allow, then disconnect from the backend."""
        now_seconds = asyncio.get_running_loop().time
        until_seconds = now_seconds() + patience_seconds
        try:
            if not await self.access_mode.drain(patience_seconds):
                log.warning("commits in progress were abandoned; their outcome is unknown", waited_s=patience_seconds)
            elif self.in_parts is not None:
                await self.in_parts.finish(until_seconds - now_seconds())
        finally:
            await self.backend.close()


async def assemble(
    settings: Settings,
    metrics: Metrics,
    spawn: Spawn,
    report: Callable[[BaseException], None],
    tracer: Tracer | None = None,
) -> Assembly:
    """Connect to the backend and create everything that depends on it. Without ``tracer``, nothing is traced.

    ``spawn`` owns background tasks, ``report`` is called with errors that cannot be sent to a client. Raises
    ``BackendUnavailable``, ``CommandError`` and ``ConfigurationError`` if the backend cannot be used.
    """
    backend, clock, forms = await _reach(settings, metrics, spawn), LoopClock(), TimedForms(report)
    authorisation = Authorisation(backend.access, clock.monotonic_seconds, settings.roles_refresh_seconds)
    ruled, growth = await _ruled(settings, backend, authorisation), await growth_of(settings, backend)
    ids, replies, cursors = ProcessIds(), PacedReplies(report, backend.cluster_times), CursorNames()
    catalog = BucketCatalog(catalog_options(settings, growth, await backend.cache_share_bytes()), clock, ids)
    readers = await readers_of(settings, backend, catalog, cursors) if growth.in_parts else None
    store = backend.bucket_store(
        settings.timeseries_bucket_max_count,
        lambda: readers is not None and is_alone(settings, catalog, readers[1]),
        None if readers is None else readers[0],
    )
    committer = Committer(catalog, store, clock, committer_options(settings, replies), report)
    ingest = _insert_handler(catalog, committer, replies, settings, backend, clock)
    effects = CatalogEffects(catalog, committer, backend.registry, store.direct_writes, ruled)
    registered = BucketCursors() if readers is None else readers[0]
    environment = _environment(settings, backend, catalog, effects, cursors, registered.relayed, authorisation)
    joining = JoiningOptions(compress=compresses(settings, backend.profile))
    in_parts = None
    if readers is not None:
        in_parts = await InParts.of(settings, backend, catalog, store, clock, readers, joining, forms)
    translate = TranslateHandler(environment)
    compressing = Compressing(catalog, store, clock, forms, compressing_options(settings))
    slow = _slow_commands(settings, metrics, report, translate)
    is_auto = settings.write_strategy == "auto"
    mode = AccessMode(backend, catalog, committer, ingest, clock, spawn, coalesces_small=is_auto)
    readings = _readings(catalog, committer, ingest, in_parts, compressing.metrics, forms.spent)
    metrics.read_catalog(replace(readings, access=mode.numbers, pursued=lambda: _pursued(committer, mode)))
    return Assembly(
        backend=backend,
        catalog=catalog,
        committer=committer,
        ingest=ingest,
        translate=translate,
        effects=effects,
        cursors=cursors,
        authorisation=authorisation,
        readers=registered,
        in_parts=in_parts,
        compressing=compressing if joining.compress else None,
        slow=slow,
        spans=traced(tracer, committer, slow.threshold, backend.pool, report),
        ruled=ruled,
        limits=_limit(LimitBook(metrics.limited), ingest, settings),
        access_mode=mode,
        ids=ids,
        backend_files=BackendFiles(settings.backend or "", backend.tls_contexts),
    )


def _slow_commands(
    settings: Settings, metrics: Metrics, report: Callable[[BaseException], None], translate: TranslateHandler
) -> SlowCommands:
    threshold_ms, shows_plans = settings.slow_command_ms, settings.slow_command_plans
    return SlowCommands(threshold_ms, metrics.slow, report, steps=translate.steps_of_read, shows_plans=shows_plans)


def _limit(limits: LimitBook, ingest: InsertHandler, settings: Settings) -> LimitBook:
    """Apply the limits of users and databases; returns ``limits``."""
    limits.configure(settings.user_limits, settings.database_limits)
    ingest.limit_rates(InsertRates(limits) if limits.limits_anything else None)
    return limits


def follow_settings(assembly: Assembly, settings: Settings) -> None:
    """Apply the reloadable ones of these settings, and load changed certificate files for the backend."""
    assembly.backend_files.reload()
    assembly.authorisation.refresh_seconds = settings.roles_refresh_seconds
    assembly.backend.registry.refresh_seconds = settings.namespace_refresh_seconds
    if assembly.ruled is not None:
        assembly.ruled.refresh_seconds = settings.namespace_refresh_seconds
    assembly.ingest.limit(settings.max_pending_bytes, settings.max_pending_measurements)
    committer, catalog, compressing = assembly.committer, assembly.catalog, assembly.compressing
    committer.pace(settings.commit_linger_ms / 1000, settings.commit_rounds_in_flight)
    catalog.limit_memory(settings.timeseries_idle_bucket_expiry_memory_usage_threshold)
    _limit(assembly.limits, assembly.ingest, settings)
    assembly.slow.set_threshold_ms(settings.slow_command_ms)
    assembly.slow.shows_plans = settings.slow_command_plans
    if compressing is not None:
        compressing.compress_after(settings.compress_after_seconds)


def _environment(
    settings: Settings,
    backend: Backend,
    catalog: BucketCatalog,
    effects: CatalogEffects,
    cursors: CursorNames,
    relayed: CursorNames,
    authorisation: Authorisation,
) -> PlanEnvironment:
    """``cursors`` are those of rewritten commands, ``relayed`` those of relayed ones."""
    return PlanEnvironment(
        rewriters=rewriters(settings),
        # Every read looks at it, so there is no function of our own in between.
        profile=partial(attrgetter("profile"), backend.probe),
        resolve=lambda namespace: _known(backend.registry, namespace),
        resolve_anew=backend.registry.resolve_anew,
        catalog_stats=lambda namespace: catalog_stats(catalog, namespace),
        about=lambda: about(catalog, backend.profile),
        holds_extended_range=catalog.holds_extended_range,
        service=backend,
        replication=backend.waits,
        take_effect=effects,
        announce=effects.announce,
        cursors=cursors,
        was_relayed=lambda cursor_id: relayed.backend_namespace(cursor_id) is not None,
        gate=authorisation,
        sessions=ServiceSessions(backend.pool.family.secret),
    )


def rewriters(settings: Settings) -> Mapping[str, Rewriter]:
    """The rewriters by command."""
    return {**REWRITERS, **HIDING_BUCKETS} if settings.hide_bucket_collections else REWRITERS


async def _ruled(settings: Settings, backend: Backend, gate: Authorisation) -> RuledCreation | None:
    """What applies the rules for new collections; ``None`` without rules. Raises ``ConfigurationError``."""
    rules = parse_rules(settings.create_as_timeseries)
    profile = backend.profile
    fault = unsupported(rules, profile.version, has_timeseries=profile.has_native_timeseries)
    if fault:
        await backend.close()
        raise ConfigurationError([f"create_as_timeseries cannot be used: {fault}"])
    registry, now_seconds = backend.registry, asyncio.get_running_loop().time
    if not rules:
        return None
    refresh_seconds = settings.namespace_refresh_seconds
    replicates = profile.is_replica_set or profile.is_mongos
    return RuledCreation(
        rules, gate, backend.name_use, registry.forget, now_seconds, refresh_seconds, replicates=replicates
    )


def _readings(
    catalog: BucketCatalog,
    committer: Committer,
    ingest: InsertHandler,
    in_parts: InParts | None,
    compressing: CompressingMetrics,
    spent: Spent,
) -> CatalogReadings:
    joins = in_parts.joining.metrics if in_parts is not None else JoiningMetrics()
    return CatalogReadings(
        lambda: catalog.totals,
        catalog.gauges,
        committer.metrics,
        lambda: catalog.growth.is_in_parts,
        lambda: catalog.growth.unjoined,
        lambda: joins.documents_joined,
        lambda: joins.readers_in_the_way,
        lambda: {reason: count + joins.compressing.left[reason] for reason, count in compressing.left.items()},
        lambda: spent.seconds,
        ingest.uncommitted,
        lambda: ingest.native.measurements,
    )


def _pursued(committer: Committer, mode: AccessMode) -> tuple[int, int]:
    (measurements, size_bytes), (coalesced, coalesced_bytes) = committer.pursued(), mode.pursued()
    return measurements + coalesced, size_bytes + coalesced_bytes


def write_strategy(settings: Settings, catalog: BucketCatalog, clock: Clock) -> WriteStrategy:
    """Which inserts the backend carries out itself."""
    wanted = settings.write_strategy
    mode: Mode = wanted if wanted in {"auto", "native"} else "catalog"
    return WriteStrategy(mode, clock.monotonic_seconds, WriteCosts(catalog))


def _insert_handler(
    catalog: BucketCatalog,
    committer: Committer,
    replies: PacedReplies,
    settings: Settings,
    backend: Backend,
    clock: Clock,
) -> InsertHandler:
    profile = backend.profile
    return InsertHandler(
        catalog,
        committer,
        StatementLog(),
        max_pending_bytes=settings.max_pending_bytes,
        max_pending_measurements=settings.max_pending_measurements,
        retryable_writes=profile.is_replica_set or profile.is_mongos,
        strategy=write_strategy(settings, catalog, clock),
        may_insert=backend.probe.may_insert,
        replies=replies,
    )


async def _reach(settings: Settings, metrics: Metrics, spawn: Spawn) -> Backend:
    return await Backend.connect(
        settings.backend or "",
        server_selection_timeout_seconds=settings.server_selection_timeout_ms / 1000,
        connect_timeout_seconds=settings.connect_timeout_ms / 1000,
        refresh_seconds=settings.namespace_refresh_seconds,
        spawn=spawn,
        timeseries_access=settings.timeseries_access,
        answered=metrics.commit_answered,
    )


def catalog_stats(catalog: BucketCatalog, namespace: Namespace | None) -> Mapping[str, int]:
    """The counters of a collection (W80), or those of all collections after the catalog's gauges (W82)."""
    if namespace is None:
        return {**catalog.gauges(), **counters_document(catalog.totals)}
    return counters_document(catalog.counters(namespace))


def _known(registry: NamespaceRegistry, namespace: Namespace) -> VirtualCollection | None:
    found = registry.lookup(namespace)
    return None if isinstance(found, Unresolved) else found
