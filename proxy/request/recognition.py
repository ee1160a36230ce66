"""Recognises commands that were seen before by their bytes, instead of parsing them.

Drivers send the same commands repeatedly. Only a few values change: the id of the session, the number of a retryable
write, the cluster time, the id of a cursor. The key of a message is its body without these values.

Their positions come from a command that was parsed, and are looked up by the length of the body (``Form``). Nothing is
searched for, so bytes inside a string or a document are never taken for such a value: the name and type of each value
that is cut out belong to the key. All cut values have a fixed size, and any bytes are valid in them.

The destination of a command on an ordinary collection depends only on its name, collection and database. These are the
key of its head; the backend checks the rest of the message.

A recognised message is executed by a ``Shortcut`` of the room concerned. All others are parsed as usual, which also
reports errors.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from catalog.bounded import BoundedCache
from catalog.bson.raw import INT64
from catalog.errors import BackendUnavailable
from proxy.request.attempt import Unreachable
from proxy.request.command import STARTS_TRANSACTION, Command
from proxy.request.exchange import Exchange, Meter
from proxy.request.needs import Needs, Requirements
from proxy.request.trace_context import may_carry_trace
from proxy.upstream.sink import Sink
from proxy.wire.framing import DOCUMENT, STRING, Element
from proxy.wire.message import Opcode, length_at
from proxy.wire.op_msg import BODY_AT

REMEMBERED_BYTES: Final = 40 << 20
"""Limit of everything that is remembered: about 20,000 inserts or relayed commands, or 900 reads of dashboards, each
with its plan."""
LONGEST_BODY_BYTES: Final = 8 * 1024
"""Longer bodies gain nothing from being recognised as a whole."""
LONGEST_BYTES: Final = 64 * 1024
"""Longer messages gain nothing from being recognised by their head."""
LONGEST_HEAD_BYTES: Final = 512
"""Maximum length of a head; no collection has a longer name."""
MOST_FORMS: Final = 4_096
FORM_BYTES: Final = 1_024
"""Maximum memory of a form."""
FORMS_OF_A_LENGTH: Final = 4
"""Maximum number of forms for bodies of one length."""

_MSG: Final = int(Opcode.MSG)
_FIRST_ELEMENT_AT: Final = BODY_AT + 4
DATABASE: Final = b"\x02$db\0"
_SESSION: Final = b"\x1e\0\0\0\x05id\0\x10\0\0\0\x04"
_SESSION_ID_BYTES: Final = 16
_TIME: Final = b"\x11clusterTime\0"
_TIME_BYTES: Final = 8
_HASH: Final = b"\x03signature\0\x33\0\0\0\x05hash\0\x14\0\0\0\0"
_HASH_BYTES: Final = 20
_NUMBER_BYTES: Final = 8
_MORE: Final = b"getMore"
_CURSOR_AT: Final = 4 + 1 + len(_MORE) + 1
SESSION_BEFORE: Final = len(_SESSION)
"""Number of bytes of the value of ``lsid`` before the id that is cut out."""
SESSION_BEHIND: Final = _SESSION_ID_BYTES + 1
"""Number of bytes of that value from the id on."""


class Value(Enum):
    """The kinds of values that change from command to command."""

    SESSION = auto()
    NUMBER = auto()
    TIME = auto()
    HASH = auto()
    """The hash in the signature of the cluster time."""
    CURSOR = auto()


Cut: TypeAlias = tuple[int, int, Value]
"""Start, end and kind of a value."""


def cuts_of(body: bytes, fields: Mapping[bytes, Element]) -> tuple[Cut, ...]:
    """The changing values in a command, or in the step that is sent for it, with these fields; in their order.

    Values that do not have the form that drivers send stay in the key.
    """
    cuts: list[Cut] = []
    kind, start, end = fields.get(b"lsid", (0, 0, 0))
    if kind == DOCUMENT and body.startswith(_SESSION, start) and end - start == SESSION_BEFORE + SESSION_BEHIND:
        cuts.append((start + SESSION_BEFORE, start + SESSION_BEFORE + _SESSION_ID_BYTES, Value.SESSION))
    kind, start, end = fields.get(b"txnNumber", (0, 0, 0))
    if kind == INT64:
        cuts.append((start, end, Value.NUMBER))
    kind, start, end = fields.get(_MORE, (0, 0, 0))
    if kind == INT64 and start == _CURSOR_AT:
        cuts.append((start, end, Value.CURSOR))
    kind, start, end = fields.get(b"$clusterTime", (0, 0, 0))
    time_at = start + 4 + len(_TIME)
    if kind == DOCUMENT and body.startswith(_TIME, start + 4) and time_at + _TIME_BYTES < end:
        cuts.append((time_at, time_at + _TIME_BYTES, Value.TIME))
        hash_at = time_at + _TIME_BYTES + len(_HASH)
        if body.startswith(_HASH, time_at + _TIME_BYTES) and hash_at + _HASH_BYTES < end:
            cuts.append((hash_at, hash_at + _HASH_BYTES, Value.HASH))
    cuts.sort(key=lambda cut: cut[0])
    return tuple(cuts)


class Form:
    """The positions of the changing values in messages of one length; 0 for missing ones."""

    __slots__ = ("_starts", "_stops", "cursor_at", "cuts", "number_at", "session_at")

    def __init__(self, cuts: tuple[Cut, ...]) -> None:
        """``cuts``: those of a body."""
        self.cuts = cuts
        at = {value: BODY_AT + start for start, _, value in cuts}
        self.session_at = at.get(Value.SESSION, 0)
        self.number_at = at.get(Value.NUMBER, 0)
        self.cursor_at = at.get(Value.CURSOR, 0)
        # Where what stays starts and ends; behind the last value comes nothing, as often as there are fewer values.
        last = BODY_AT + (cuts[-1][1] if cuts else 0)
        unused = len(Value) - len(cuts)
        starts = [BODY_AT, *(BODY_AT + stop for _, stop, _ in cuts), *([last] * unused)]
        stops = [*(BODY_AT + start for start, _, _ in cuts), *([last] * unused)]
        self._starts = (starts[0], starts[1], starts[2], starts[3], starts[4], starts[5])
        self._stops = (stops[0], stops[1], stops[2], stops[3], stops[4])

    def key(self, raw: bytes, end: int) -> bytes:
        """The body of a message, which ends at ``end``, without the changing values."""
        a, b, c, d, e, f = self._starts
        p, q, r, s, t = self._stops
        if b == t:
            # The body has at most one of these values.
            return raw[a:p] + raw[b:end]
        return b"".join((raw[a:p], raw[b:q], raw[c:r], raw[d:s], raw[e:t], raw[f:end]))

    def filled(self, raw: bytes, pieces: tuple[bytes, ...]) -> bytes:
        """``pieces`` with the values of a message between them; there is one value less than pieces."""
        whole = [pieces[0]]
        for (start, stop, _), piece in zip(self.cuts, pieces[1:], strict=True):
            whole.append(raw[BODY_AT + start : BODY_AT + stop])
            whole.append(piece)
        return b"".join(whole)


_NO_FORM: Final = Form(())


class Remembered:
    """An entry of the memory; ``weight_bytes``: its size without its key."""

    __slots__ = ("weight_bytes",)

    def __init__(self, weight_bytes: int) -> None:
        self.weight_bytes = weight_bytes


Memory: TypeAlias = BoundedCache[Hashable, Remembered]
"""Everything that is remembered of commands. Keys of different kinds have different types or beginnings."""


def memory(limit_bytes: int = REMEMBERED_BYTES) -> Memory:
    """An empty memory."""
    return BoundedCache(limit_bytes, _weight)


def _weight(key: Hashable, kept: Remembered) -> int:
    parts = key if isinstance(key, tuple) else (key,)
    return kept.weight_bytes + sum(len(part) for part in parts if isinstance(part, bytes))


class Shortcut:
    """Executes recognised messages. Immutable."""

    __slots__ = ("by_head", "weight_bytes")

    def __init__(self, weight_bytes: int, *, by_head: bool = False) -> None:
        """``by_head``: for all messages with the same head; otherwise only for those with the same body."""
        self.weight_bytes = weight_bytes
        self.by_head = by_head

    def start(self, exchange: Exchange, known: Recognised, form: Form, end: int) -> bool:
        """Start the command; false, with nothing done, if the shortcut does not handle this message.

        ``end`` is that of the body. What ``known`` needs is there.
        """
        raise NotImplementedError


class Recognised(Remembered):
    """What is remembered of the messages with one key."""

    __slots__ = ("meter", "needs", "shortcut")

    def __init__(self, needs: Needs, meter: Meter, shortcut: Shortcut) -> None:
        super().__init__(shortcut.weight_bytes)
        self.needs = needs
        self.meter = meter
        self.shortcut = shortcut

    def begin(self, exchange: Exchange) -> None:
        """Start counting the command."""
        exchange.meter = self.meter
        reader = self.needs.reader
        if reader is not None:
            exchange.enter(reader)

    def send(self, exchange: Exchange, raw: bytes, sink: Sink) -> bool:
        """Begin, and send ``raw`` over the client's own connection; the reply goes to ``sink``.

        False, with nothing done, if the connection is not open or the reply must be compressed.
        """
        if not self.can_send(exchange):
            return False
        self.begin(exchange)
        self.pass_on(exchange, raw, sink)
        return True

    def can_send(self, exchange: Exchange) -> bool:
        """Whether the client's own connection is open, and the reply can go to the client as it comes."""
        return exchange.session.upstream.ready is not None and not exchange.message.compressor

    def pass_on(self, exchange: Exchange, raw: bytes, sink: Sink) -> None:
        """Send ``raw`` over the client's own connection, if ``can_send``; the reply goes to ``sink``."""
        connection = exchange.session.upstream.ready
        assert connection is not None
        try:
            connection.stream(raw, sink)
        except BackendUnavailable as error:
            exchange.end(Unreachable(error))


class Recogniser:
    """Recognises commands, and starts those whose conditions are met."""

    def __init__(self, remembered: Memory, requirements: Requirements) -> None:
        self._memory = remembered
        self._requirements = requirements
        self._forms: list[tuple[Form, ...]] = [()] * (LONGEST_BODY_BYTES + 1)
        """The forms by the length of the body."""
        self._count = 0

    def start(self, exchange: Exchange) -> bool:
        """Start the command of an OP_MSG if it is recognised; false, with nothing done, if it is not."""
        message = exchange.message
        raw = message.raw
        end = body_end(raw)
        if not end or message.parts is not None:
            return False
        if end - BODY_AT <= LONGEST_BODY_BYTES:
            for form in self._forms[end - BODY_AT]:
                known = self._memory.get(form.key(raw, end))
                if known is not None and self._begins(exchange, known, form, end):
                    return True
        head = head_of(raw, end)
        known = None if head is None else self._memory.get(head)
        return known is not None and self._begins(exchange, known, _NO_FORM, end)

    def _begins(self, exchange: Exchange, known: Remembered, form: Form, end: int) -> bool:
        assert isinstance(known, Recognised)
        if not self._requirements.are_met(exchange.session, known.needs):
            return False
        return known.shortcut.start(exchange, known, form, end)

    def remember(self, command: Command, needs: Needs, meter: Meter, shortcut: Shortcut | None) -> None:
        """Remember ``command``: ``shortcut`` will execute messages like it, and ``meter`` counts them."""
        message = command.message
        end = body_end(message.raw) if message.opcode == _MSG else 0
        if shortcut is None or not end or (not shortcut.by_head and may_carry_trace(command.body)):
            # A client that passes a trace context sends another body each time.
            return
        if STARTS_TRANSACTION in command.fields and not shortcut.by_head:
            return
        if needs.asks_members or not self._requirements.is_as_it_was(needs):
            return
        if shortcut.by_head:
            key = head_of(message.raw, end)
        elif end - BODY_AT == len(command.body) <= LONGEST_BODY_BYTES:
            key = self._form_of(command).key(message.raw, end)
        else:
            return
        if key is not None:
            self._memory.put(key, Recognised(needs, meter, shortcut))

    def _form_of(self, command: Command) -> Form:
        cuts, size = cuts_of(command.body, command.fields), len(command.body)
        for known in self._forms[size]:
            if known.cuts == cuts:
                return known
        if self._count >= MOST_FORMS:
            self._forms = [()] * (LONGEST_BODY_BYTES + 1)
            self._count = 0
        form = Form(cuts)
        others = self._forms[size][: FORMS_OF_A_LENGTH - 1]
        self._count += 1 + len(others) - len(self._forms[size])
        self._forms[size] = (form, *others)
        return form


def body_end(raw: bytes) -> int:
    """Where the body of an OP_MSG without flags ends; 0 if it is not the first section, or there is no end."""
    if len(raw) < BODY_AT + 5 or raw[16] | raw[17] | raw[18] | raw[19] | raw[20]:
        return 0
    end = BODY_AT + length_at(raw, BODY_AT)
    return end if BODY_AT + 5 <= end <= len(raw) else 0


def head_of(raw: bytes, end: int) -> bytes | None:
    """The bytes that determine the destination of a command on an ordinary collection: first element and database.

    ``$db`` may be anywhere in the body, but if its bytes occur only once, there is no other. ``None`` if the first
    element is not a string, or if the message is not as drivers send it.
    """
    if raw[_FIRST_ELEMENT_AT] != STRING or len(raw) > LONGEST_BYTES:
        return None
    position = _FIRST_ELEMENT_AT + 1
    last = min(end, position + LONGEST_HEAD_BYTES)
    while position < last and raw[position]:
        position += 1
    if position + 5 > end or raw[position]:
        return None
    first_end = position + 5 + length_at(raw, position + 1)
    if first_end > end:
        return None
    at = raw.find(DATABASE, first_end, end)
    if at < 0 or at + 9 > end:
        return None
    stop = at + 9 + length_at(raw, at + 5)
    if stop > end or first_end + stop - at - _FIRST_ELEMENT_AT > LONGEST_HEAD_BYTES:
        return None
    # Usually the database is the last field, so that no other can follow it.
    if stop != end - 1 and raw.find(DATABASE, at + 5, end) >= 0:
        return None
    return raw[_FIRST_ELEMENT_AT:first_end] + raw[at:stop]
