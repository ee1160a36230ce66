"""Reads of time-series collections that were asked before, recognised by their bytes: sent without being parsed.

Dashboards ask the same thing again and again. All that differs between two such messages is the session and the
cluster time in which they are asked, so these are cut out of the bytes that are compared, and put into the step that
is sent. What is not recognised, and whatever then goes wrong, takes the ordinary way.
"""

from __future__ import annotations

from typing import Final

from catalog.bounded import BoundedCache
from catalog.bson.raw import unpack_int32, unpack_int64
from catalog.errors import BackendUnavailable
from catalog.namespaces import VirtualCollection
from proxy.reads.cursor_stream import Renaming
from proxy.reads.inline_reads import InlineReads, InlineReply, Prepared, SentStep, whole_command
from proxy.reads.plan_cache import CachedPlan, weight_of_plan
from proxy.request import router
from proxy.request.attempt import Unreachable
from proxy.request.command import Command
from proxy.request.exchange import Attempts, Client, Exchange, Meter, Reader
from proxy.request.ports import Readers
from proxy.request.session import Session
from proxy.request.session_fields import TRANSACTION_FIELDS
from proxy.wire import op_msg
from proxy.wire.limits import HEADER_SIZE_BYTES
from proxy.wire.message import Message
from proxy.wire.op_msg import BODY_AT
from proxy.wire.request_ids import next_request_id

REMEMBERED_BYTES: Final = 8 << 20
"""For all of them together; about 2,000 questions as dashboards ask them."""
LONGEST_BYTES: Final = 8 * 1024

_NO_FLAGS_AND_A_BODY: Final = bytes(5)
_NAME_AT: Final = BODY_AT + 4
_BEGINNINGS: Final = frozenset({b"\x02fin", b"\x02agg", b"\x02cou", b"\x02dis", b"\x12get"})
_MORE: Final = b"\x12getMore\0"
_CURSOR_AT: Final = _NAME_AT + len(_MORE)
_CURSOR_END: Final = _CURSOR_AT + 8
_STEP_CURSOR_AT: Final = 4 + len(_MORE)
_FIELD: Final = b"\x03lsid\0"
_SESSION: Final = b"\x03lsid\0\x1e\0\0\0\x05id\0\x10\0\0\0\x04"
_SESSION_ID_BYTES: Final = 16
_CLUSTER_TIME: Final = b"\x03$clusterTime\0"


class Cut:
    """Bytes of a message without the id of the session and the cluster time.

    ``key`` is what stands before, between and behind them; the length of the cluster time is part of it.
    """

    __slots__ = ("key", "session", "session_at", "time", "time_at")

    def __init__(self, raw: bytes, start: int, session_at: int, time_at: int, time_end: int) -> None:
        """``time_at`` is where there is no cluster time the end of the session's id, as ``time_end``."""
        behind = session_at + _SESSION_ID_BYTES
        self.session_at = session_at
        self.time_at = time_at
        self.session = raw[session_at:behind]
        self.time = raw[time_at:time_end]
        self.key = (raw[start:session_at], raw[behind:time_at], raw[time_end:])


def cut(raw: bytes, start: int, search_from: int) -> Cut | None:
    """Of ``raw[start:]``; ``None`` for what has no session as drivers send it from ``search_from`` on."""
    at = raw.find(_SESSION, search_from)
    if at < 0:
        return None
    session_at = at + len(_SESSION)
    behind = session_at + _SESSION_ID_BYTES
    at = raw.find(_CLUSTER_TIME, behind)
    if at < 0:
        return Cut(raw, start, session_at, behind, behind) if behind < len(raw) else None
    size_at = at + len(_CLUSTER_TIME)
    time_at = size_at + 4
    if time_at >= len(raw):
        return None
    # Its last zero is compared.
    time_end = size_at + int(unpack_int32(raw, size_at)[0]) - 1
    return Cut(raw, start, session_at, time_at, time_end) if time_at <= time_end < len(raw) else None


class PlainRead:
    """What is sent for a message that is recognised: ``parts`` of the step's document, around session and time."""

    __slots__ = ("kept", "meter", "namespace", "parts", "prepared", "reader", "renaming")

    def __init__(
        self,
        parts: tuple[bytes, bytes, bytes],
        meter: Meter,
        kept: CachedPlan | None,
        prepared: Prepared | None,
        renaming: Renaming,
        reader: Reader | None,
    ) -> None:
        """``kept`` and ``prepared`` are those of a question; without them the step goes on with a cursor."""
        self.parts = parts
        self.meter = meter
        self.kept = kept
        self.prepared = prepared
        self.renaming = renaming
        self.reader = reader
        self.namespace = renaming.buckets.logical

    def message(self, found: Cut, cursor_id: bytes) -> bytes:
        """The step in the session, and at the time, of that message."""
        before, between, behind = self.parts
        if cursor_id:
            before = before[:_STEP_CURSOR_AT] + cursor_id + before[_STEP_CURSOR_AT + 8 :]
        document = b"".join((before, found.session, between, found.time, behind))
        return op_msg.build(next_request_id(), 0, document)


class PlainReads:
    """The messages that are recognised."""

    def __init__(
        self,
        lookup: router.Lookup,
        at_once: InlineReads | None,
        readers: Readers | None,
        *,
        has_members: bool,
        limit_bytes: int = REMEMBERED_BYTES,
    ) -> None:
        """``has_members``: reads and cursors may have to go elsewhere than to the client's own connection."""
        self._lookup = lookup
        self._at_once = at_once
        self._readers = readers
        self._has_members = has_members
        self._known: BoundedCache[tuple[bytes, bytes, bytes], PlainRead] = BoundedCache(limit_bytes, _weight)

    def remember(self, exchange: Exchange, step: SentStep) -> None:
        """The command of ``exchange`` was sent as this step."""
        command, meter, at_once, kept = exchange.command, exchange.meter, self._at_once, step.kept
        if command is None or meter is None or at_once is None or not self._is_plain(exchange, command, step):
            return
        raw = exchange.message.raw
        found = cut(raw, HEADER_SIZE_BYTES if kept is not None else _CURSOR_END, BODY_AT)
        whole = whole_command(step.document, step.session, command.raw(b"$db"))
        sent = cut(whole, 0, len(step.document) - 1)
        # Bytes that stand once stand where the parsed command has them.
        times = 1 if b"$clusterTime" in command.fields else 0
        if found is None or raw.count(_SESSION) != 1 or raw.count(_CLUSTER_TIME) != times:
            return
        if sent is None or sent.session != found.session or sent.time != found.time or bool(found.time) != bool(times):
            return
        if command.fields[b"lsid"][1] + BODY_AT != found.session_at - len(_SESSION) + len(_FIELD):
            return
        prepared = None if kept is None else at_once.prepared(kept)
        reader = None if self._readers is None else self._readers.of_rewritten(step.buckets.logical)
        self._known.put(found.key, PlainRead(sent.key, meter, kept, prepared, Renaming(step.buckets), reader))

    def _is_plain(self, exchange: Exchange, command: Command, step: SentStep) -> bool:
        message, fields = exchange.message, command.fields
        raw = message.raw
        if message.compressor or len(raw) > LONGEST_BYTES or raw[BODY_AT - 5 : BODY_AT] != _NO_FLAGS_AND_A_BODY:
            return False
        if exchange.session.member is not None:
            return False
        if self._has_members and (step.kept is None or b"$readPreference" in fields):
            return False
        return b"lsid" in fields and TRANSACTION_FIELDS.isdisjoint(fields)

    def start(self, session: Session, message: Message, client: Client, attempts: Attempts) -> Exchange | None:
        """Send the step if the message is recognised; ``None`` when it is not, and nothing was done."""
        raw = message.raw
        connection, at_once = session.upstream.ready, self._at_once
        beginning = raw[_NAME_AT : _NAME_AT + 4]
        if beginning not in _BEGINNINGS or len(raw) > LONGEST_BYTES or connection is None or at_once is None:
            return None
        cursor_id = raw[_CURSOR_AT:_CURSOR_END] if _is_more(raw) else b""
        found = cut(raw, _CURSOR_END if cursor_id else HEADER_SIZE_BYTES, BODY_AT)
        read = None if found is None else self._known.get(found.key)
        if read is None or found is None:
            return None
        prepared = self._prepared(at_once, session, read, cursor_id)
        if prepared is None:
            return None
        reader = read.reader
        if reader is not None and reader.is_kept_out:
            return None
        exchange = Exchange(session, client, message, attempts)
        exchange.meter = read.meter
        if reader is not None:
            exchange.enter(reader)
        try:
            reply = InlineReply(exchange, None if read.kept is None else read.kept.target, prepared, at_once.cursors)
            connection.stream(read.message(found, cursor_id), reply)
        except BackendUnavailable as error:
            exchange.end(Unreachable(error))
        return exchange

    def _prepared(self, at_once: InlineReads, session: Session, read: PlainRead, cursor_id: bytes) -> Prepared | None:
        """What becomes of the reply; ``None`` when what is known does not hold for this client now."""
        kept = read.kept
        if kept is None:
            if not cursor_id:
                return None
            number = int(unpack_int64(cursor_id, 0)[0])
            if at_once.cursors.backend_namespace(number) != read.renaming.buckets:
                return None
            return at_once.prepared_more(number, read.renaming)
        collection = self._lookup(read.namespace)
        if cursor_id or not isinstance(collection, VirtualCollection) or not at_once.holds(session, kept, collection):
            return None
        return read.prepared


def _weight(key: tuple[bytes, bytes, bytes], read: PlainRead) -> int:
    """The plan may live on here when its own cache has let it go."""
    own = sum(map(len, key)) + sum(map(len, read.parts)) + 1_200
    return own + (0 if read.kept is None else weight_of_plan(read.kept))


def _is_more(raw: bytes) -> bool:
    """Whether a message is a ``getMore`` and nothing else."""
    return (
        raw.startswith(_MORE, _NAME_AT)
        and raw[BODY_AT - 5 : BODY_AT] == _NO_FLAGS_AND_A_BODY
        and int(unpack_int32(raw, BODY_AT)[0]) == len(raw) - BODY_AT
    )
