"""What the execution of plans needs of the rest of the process (``proxy.reads.translate``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from catalog.namespaces import Namespace, VirtualCollection
from proxy.reads.cursor_names import CursorNames
from proxy.reads.cursors import Resolver
from proxy.reads.final_wait import Replication
from proxy.request.ports import Announce, ReadGate
from proxy.request.service_sessions import ServiceSessions
from proxy.request.step_places import StepPlaces
from rewrite.plan import CatalogStats, Document, Effect, Rewriter
from rewrite.profile import Profile


class Service(Protocol):
    """Runs commands with the proxy's own account."""

    async def run_raw(self, database: str, body: Mapping[str, Any]) -> bytes:
        """Run one command; returns the raw reply document, also an error reply. Raises ``BackendUnavailable``."""
        ...


class NoReadGate:
    """For backends without access control."""

    async def allows(self, session: Any, actions: tuple[str, ...], namespace: Namespace) -> bool:
        return True

    async def reads_buckets(self, session: Any, namespace: Namespace) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class PlanEnvironment:
    """What the execution of plans needs, apart from the client."""

    rewriters: Mapping[str, Rewriter]
    profile: Callable[[], Profile]
    resolve: Resolver
    resolve_anew: Callable[[Namespace], Awaitable[VirtualCollection | None]]
    catalog_stats: CatalogStats
    service: Service
    take_effect: Callable[[Effect], None]
    announce: Announce
    cursors: CursorNames
    was_relayed: Callable[[int], bool] = lambda _: False
    """Whether a relayed command is known to have opened this cursor."""
    gate: ReadGate = field(default_factory=NoReadGate)
    sessions: ServiceSessions = field(default_factory=lambda: ServiceSessions(b""))
    places: StepPlaces = field(default_factory=StepPlaces)
    turns: StepPlaces = field(default_factory=lambda: StepPlaces(places=1, places_of_one=1))
    """Turns of the one thread in which dialogues run."""
    replication: Replication | None = None
    """Waits for write concerns, with replica sets."""
    about: Callable[[], Document] = dict
    """Version and mode of this proxy, for ``buildInfo`` and ``serverStatus``."""
    holds_extended_range: Callable[[Namespace], bool] = lambda _: False
    """Whether this process has written times for which bucket ids are not in order (Q12)."""
