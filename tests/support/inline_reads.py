"""Reads that are sent at once, in front of a connection that remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson import Int64

from catalog.errors import BackendUnavailable
from catalog.namespaces import Namespace, VirtualCollection
from proxy.clients.relay_only import no_others
from proxy.reads.cursor_names import CursorNames
from proxy.reads.inline_reads import InlineReads
from proxy.reads.plan_environment import PlanEnvironment
from proxy.reads.translate import TranslateHandler
from proxy.request import router
from proxy.request.command import parse_command
from proxy.wire.message import Message
from rewrite.plan import Rewriter
from rewrite.profile import Profile
from rewrite.registry import REWRITERS
from tests.support.recognising import Recognising
from tests.support.scopes import TARGET

BUCKETS = "db.system.buckets.x"


class NoService:
    async def run_raw(self, database: str, body: Any) -> bytes:
        raise BackendUnavailable("nowhere")


class Reads(Recognising):
    """``InlineReads`` with what recognises its reads."""

    def __init__(
        self,
        *,
        has_members: bool = False,
        limit_bytes: int = 1 << 20,
        rewriters: Mapping[str, Rewriter] = REWRITERS,
    ) -> None:
        super().__init__(has_members=has_members, limit_bytes=limit_bytes)
        self.found = TARGET
        self.cursors = CursorNames()
        self.profile = Profile()
        handler = TranslateHandler(
            PlanEnvironment(
                rewriters=rewriters,
                profile=lambda: self.profile,
                resolve=lambda _: TARGET,
                resolve_anew=self._resolve_anew,
                catalog_stats=lambda _: {},
                service=NoService(),
                take_effect=lambda _: None,
                announce=no_others,
                cursors=self.cursors,
            )
        )
        self.reads = InlineReads(handler, self.memory)

    async def _resolve_anew(self, namespace: Namespace) -> VirtualCollection | None:
        return TARGET

    @property
    def outcomes(self) -> list[type]:
        return [type(outcome) for outcome in self.told.outcomes]

    def step_of(self, raw: bytes) -> bytes | None:
        """The raw step of a read, which is not sent; ``None`` if it goes the long way."""
        step = self.reads.step(parse_command(Message.from_bytes(raw)), self.found, reads_buckets=True)
        return None if step is None else step.document

    def start(self, raw: bytes, collection: VirtualCollection | None = TARGET) -> bool:
        """As it is done for a command that was not recognised; whether the read does not go the long way."""
        exchange = self.exchange(raw)
        command = parse_command(Message.from_bytes(raw))
        connection = self.session.upstream.ready
        needs = self.requirements.of(command, router.Translate(collection))
        allowed = self.requirements.rights(self.session, needs)
        step = self.reads.step(command, collection, allowed)
        if step is None or connection is None:
            return False
        self.recogniser.remember(command, needs, self, step.shortcut)
        self.reads.send(exchange, step, collection, connection)
        return True


def cursor_reply(cursor_id: int, batch: str = "firstBatch") -> dict[str, Any]:
    return {"cursor": {batch: [{"a": 1}], "id": Int64(cursor_id), "ns": BUCKETS}, "ok": 1.0}
