"""Reads of time-series collections that need one step and no permission check, sent without a task.

All other commands are handled by ``proxy.reads.translate``, which covers every case.
"""

from __future__ import annotations

import bson
from bson.errors import InvalidBSON

from catalog.bson.codec import CODEC
from catalog.bson.raw import string_value
from catalog.errors import UNAUTHORIZED, UUID_MISMATCH, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.reads.cursor_stream import Renaming
from proxy.reads.cursors import error_code
from proxy.reads.inline_reply import Finish, InlineReply, Prepared, prepared_more
from proxy.reads.plain_read import PlainMore, PlainQuestion, pieces_of
from proxy.reads.plan_cache import CachedPlan, PlanCache, question
from proxy.reads.plan_templates import PlanTemplates
from proxy.reads.translate import TranslateHandler
from proxy.request.command import Command
from proxy.request.command_table import INLINE
from proxy.request.exchange import Exchange
from proxy.request.recognition import Memory, Shortcut
from proxy.request.session_fields import Undecodable
from proxy.upstream.connection import UpstreamConnection
from proxy.wire import op_msg
from proxy.wire.request_ids import next_request_id
from rewrite.commands.reading import FASTER_ON_VIEW
from rewrite.plan import GUESS_FAILED, Cursor, Single, Via


def needs_another(plan: Single | Cursor, code: int | None) -> bool:
    """Whether ``proxy.reads.translate`` has to go on after this error of the step."""
    return code in (UNAUTHORIZED, UUID_MISMATCH) or (code == GUESS_FAILED and plan.otherwise is not None)


class ReadStep:
    """The step of a read: its ``document`` with the session fields, and how its reply is processed.

    ``shortcut`` does the same for equal messages; ``None`` if these cannot be recognised.
    """

    __slots__ = ("document", "prepared", "shortcut")

    def __init__(self, document: bytes, prepared: Prepared, shortcut: Shortcut | None = None) -> None:
        self.document = document
        self.prepared = prepared
        self.shortcut = shortcut


class InlineReads:
    """Plans reads that need one step, and sends the step."""

    def __init__(self, translate: TranslateHandler, memory: Memory) -> None:
        """Plans are kept in ``memory``."""
        self._translate = translate
        self._kept = PlanCache(memory)
        self._templates = PlanTemplates(memory, self._plan)

    def step(
        self, command: Command, collection: VirtualCollection | None, reads_buckets: bool | None
    ) -> ReadStep | None:
        """The step of a read; ``None`` if ``proxy.reads.translate`` must handle it.

        ``reads_buckets``: whether the client may read the buckets; ``None`` if the backend must be asked.
        """
        if command.sequences or not command.expects_reply:
            return None
        if command.name == "getMore":
            return self._more(command)
        if collection is None or command.name not in INLINE or reads_buckets is None:
            return None
        if reads_buckets:
            return self._read(command, collection)
        return None if command.name in FASTER_ON_VIEW else self._through_the_view(command)

    def send(
        self, exchange: Exchange, step: ReadStep, collection: VirtualCollection | None, connection: UpstreamConnection
    ) -> None:
        """Send the step; the exchange gets the outcome. Raises ``UpstreamLost`` if the connection has just ended."""
        raw = op_msg.build(next_request_id(), 0, step.document)
        exchange.sent()
        connection.stream(raw, InlineReply(exchange, collection, step.prepared, self._translate.context.cursors))

    def _read(self, command: Command, collection: VirtualCollection) -> ReadStep | None:
        asked = question(command)
        if asked is None:
            return None
        translate, database = self._translate, command.raw(b"$db")
        target = translate.context.as_written(collection)
        profile = translate.context.profile
        kept = self._kept.find(database, asked, target, profile)
        is_known = kept is not None
        if kept is None:
            kept = self._templates.plan(command, asked, database, target, profile)
            if kept is None:
                return None
            self._kept.keep(database, asked, kept)
        renaming = kept.renaming
        prepared = Prepared(self._finish(kept.plan), None if renaming is None else renaming.grown_bytes, renaming)
        whole = whole_command(kept.document, asked.session, database)
        # Only reads that are repeated are worth recognising.
        pieces = pieces_of(command, whole) if is_known else None
        shortcut = None if pieces is None else PlainQuestion(translate.context, kept, prepared, pieces)
        return ReadStep(whole, prepared, shortcut)

    def _plan(self, command: Command, target: VirtualCollection) -> CachedPlan | None:
        try:
            plan = self._translate.plan_of_read(command, target)
        except (CommandError, Undecodable):
            return None
        if not isinstance(plan, Single | Cursor) or plan.effects or plan.step.via is not Via.CLIENT:
            return None
        renaming = Renaming(target.buckets) if isinstance(plan, Cursor) else None
        return CachedPlan(
            target, self._translate.context.profile, plan, bson.encode(plan.step.body, codec_options=CODEC), renaming
        )

    def _finish(self, plan: Single | Cursor) -> Finish:
        def finish(reply: bytes, process: bytes) -> bytes | None:
            if needs_another(plan, error_code(reply)):
                return None
            if isinstance(plan, Cursor):
                return self._translate.renamed(plan, reply, process)
            try:
                return self._translate.reshaped(plan, reply)
            except InvalidBSON:
                return None

        return finish

    def _through_the_view(self, command: Command) -> ReadStep:
        """The command as the client sent it, for clients that may read the collection but not its buckets."""

        def finish(reply: bytes, process: bytes) -> bytes:
            self._translate.note_cursor(command, reply, process)
            return reply

        return ReadStep(command.body, Prepared(finish, grown_bytes=0))

    def _more(self, command: Command) -> ReadStep | None:
        """A ``getMore`` of a cursor that this process opened on buckets, if it names the cursor's collection."""
        cursors = self._translate.context.cursors
        cursor_id = command.get("getMore")
        buckets = cursors.backend_namespace(cursor_id) if isinstance(cursor_id, int) else None
        if buckets is None or not isinstance(cursor_id, int):
            return None
        named = Namespace(command.namespace.database, str(command.get("collection")))
        asked = question(command, also_left_out=b"collection")
        if asked is None or named != buckets.logical:
            return None
        collection = string_value(buckets.collection.encode())
        elements = asked.asked + collection[:1] + b"collection\0" + collection[1:]
        document = (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"
        whole = whole_command(document, asked.session, command.raw(b"$db"))
        renaming = Renaming(buckets)
        pieces = pieces_of(command, whole)
        shortcut = None if pieces is None else PlainMore(cursors, renaming, pieces)
        return ReadStep(whole, prepared_more(cursors, cursor_id, renaming), shortcut)


def whole_command(document: bytes, session: bytes, database: bytes) -> bytes:
    """The command of a step with the raw fields of the session and the raw value of ``$db``."""
    tail = session + b"\x02$db\0" + database + b"\0"
    return (len(document) - 1 + len(tail)).to_bytes(4, "little") + document[4:-1] + tail
