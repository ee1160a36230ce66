"""One running command: its client, the path of its reply, its clock, and that there is exactly one reply."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import bson

from catalog.bson.codec import CODEC
from catalog.errors import BackendUnavailable, CommandError
from catalog.ports import Acknowledgement
from proxy.request.attempt import Deposed, Lost, Outcome, of_error
from proxy.request.command import Command, parse_command
from proxy.request.command_clock import CommandClock
from proxy.request.command_table import ENDS_TRANSACTION
from proxy.request.refusal import refused_with
from proxy.request.session import Session
from proxy.request.slow_threshold import NEVER_SLOW, Ended, SlowThreshold
from proxy.upstream.connection import reply_document
from proxy.wire import op_compressed, op_msg, op_query
from proxy.wire.limits import HEADER_SIZE_BYTES
from proxy.wire.message import Message, Opcode
from proxy.wire.request_ids import next_request_id

_MSG: Final = int(Opcode.MSG)
_CHECKSUM_PRESENT: Final = op_msg.CHECKSUM_PRESENT
_LARGE_BYTES: Final = 64 * 1024
_BODY_AT: Final = op_msg.BODY_AT

HOST_UNREACHABLE: Final = 6
"""The error that a client sees when its connection is closed instead of a reply."""
SHUTDOWN_IN_PROGRESS: Final = 91

TAIL_BYTES: Final = 2_048
"""Enough for the end of a reply after its batch: the cursor's id, its name of up to 255 bytes, and times."""


class Client(Protocol):
    """The client's connection."""

    def write(self, data: bytes) -> None:
        """Queue bytes for the client."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """The bytes that are queued and not sent yet."""
        ...

    def finish(self) -> None:
        """The command has ended; continue with the next."""
        ...

    def close(self) -> None:
        """Close after the queued bytes are sent."""
        ...


class Pending(Protocol):
    """A running command, as the client's connection sees it."""

    def goes_on_alone(self) -> bool:
        """The client has disconnected: whether the command goes on, because it wants no reply."""
        ...

    def abandon(self) -> None:
        """The client has disconnected."""
        ...

    def waited_for_turn(self, since_seconds: float) -> None:
        """The command, which has just started, has waited for its turn since then (``time.perf_counter``)."""
        ...


class Meter(Protocol):
    """Counts the requests of one command and way."""

    @property
    def way(self) -> str:
        """The way: relay, translate, ingest, answer, admin or refuse."""
        ...

    def done(self, seconds: float, code: int = 0) -> None:
        """Count one request that took ``seconds``; ``code``: of the error that the client got, 0 for none."""
        ...


class Places(Protocol):
    """What a running command occupies of its limits (``proxy.clients.command_limits``)."""

    def leave(self) -> None:
        """The command has ended; called once."""
        ...


class Reader(Protocol):
    """What a running command reads (``proxy.readers.register``). One object may be entered by many commands."""

    @property
    def leaves_cursor(self) -> bool:
        """Whether ``leave`` needs the end of a relayed reply."""
        ...

    def enter(self) -> None:
        """A command begins to read."""
        ...

    def leave(self, tail: bytes, process: bytes = b"") -> None:
        """It has ended; ``tail``: the last bytes of its relayed reply, ``b""`` for none.

        ``process``: the server process that replied, ``b""`` if unknown.
        """
        ...

    @property
    def is_kept_out(self) -> bool:
        """Whether a new command has to wait until ``admitted``."""
        ...

    async def admitted(self) -> None:
        """Wait until no new command has to wait any more."""
        ...


def encode(document: Mapping[str, Any]) -> bytes:
    """A reply document of the proxy."""
    return bson.encode(document, codec_options=CODEC)


class Attempts(Protocol):
    """Decides what follows when an attempt to execute a command has ended (``proxy.clients.dispatch``)."""

    def ended(self, exchange: Exchange, outcome: Outcome) -> None:
        """Act on what ``what_follows`` says; raises nothing."""
        ...

    def go_on(self, exchange: Exchange) -> None:
        """Start a command that was held; raises nothing."""
        ...


class Exchange(CommandClock):
    """One command from its message to its reply. Also the sink of a relayed reply.

    It is finished exactly once: with a reply, without one if the client wants none, or by closing. The clock starts
    when it is made; ``meter`` gets the duration at the end. ``command`` is ``None`` until the message is parsed, which
    a recognised command needs only in case of an error. ``reader`` is entered by ``enter`` and left at the end, also if
    the client has disconnected. ``on_abandon`` is called if the client disconnects before the end.
    ``place``: what it occupies of its limits, left at the end.
    """

    __slots__ = (
        "_chunks",
        "_code",
        "_reader",
        "_tail",
        "attempts",
        "client",
        "command",
        "message",
        "meter",
        "on_abandon",
        "place",
        "session",
    )

    def __init__(
        self, session: Session, client: Client, message: Message, attempts: Attempts, slow: SlowThreshold = NEVER_SLOW
    ) -> None:
        super().__init__(slow)
        self.session = session
        self.client = client
        self.message = message
        self.attempts = attempts
        self.on_abandon: Callable[[], None] | None = None
        self.command: Command | None = None
        self.meter: Meter | None = None
        # Of the error in a reply that streams; negative before its first bytes.
        self._code = -1
        self.place: Places | None = None
        self._reader: Reader | None = None
        # The last bytes of a relayed reply, where the reader wants to see them.
        self._tail: bytes | None = None
        # A client that compresses gets compressed replies, so relayed ones are collected for it.
        self._chunks: list[bytes] | None = [] if message.compressor else None

    @property
    def expects_reply(self) -> bool:
        """Whether the client wants a reply."""
        message = self.message
        return message.opcode != _MSG or not message.raw[HEADER_SIZE_BYTES] & op_msg.MORE_TO_COME

    def parsed(self) -> Command:
        """The command of an OP_MSG; raises as ``parse_command``."""
        command = self.command
        if command is None:
            command = self.command = parse_command(self.message)
        return command

    def enter(self, reader: Reader) -> None:
        """Count the command as a reader until it ends."""
        self._leave()
        self._reader = reader
        if reader.leaves_cursor:
            self._tail = b""
        reader.enter()

    def end(self, outcome: Outcome) -> None:
        """An attempt to execute the command has this outcome."""
        self.attempts.ended(self, outcome)

    def go_on(self) -> None:
        """Start the command, which was held until now."""
        self.attempts.go_on(self)

    # --- replies of the proxy -----------------------------------------------------------------------------------

    def reply(self, document: bytes | None, acknowledgement: Acknowledgement | None = None) -> None:
        """Reply with a raw document, or with nothing, and finish.

        ``acknowledgement``: of the commit with the measurements of an insert.
        """
        if document is not None and self.expects_reply:
            if len(document) > _LARGE_BYTES and self.takes_plain_replies:
                # Written after its header, to save copying both.
                self.client.write(op_msg.head(next_request_id(), self.message.request_id, len(document)))
                self.client.write(document)
            else:
                self.client.write(self.frame(document))
        code = 0 if document is None else refused_with(document, 0)
        self._finish(code, document, None, acknowledgement)

    @property
    def takes_plain_replies(self) -> bool:
        """Whether replies are neither compressed nor have a checksum."""
        message = self.message
        return message.opcode == _MSG and not message.compressor and not message.raw[16] & _CHECKSUM_PRESENT

    def frame(self, document: bytes, flags: int = 0, response_to: int | None = None) -> bytes:
        """The reply message: of the request's own kind, compressed and with a checksum as the request was."""
        message = self.message
        answered = message.request_id if response_to is None else response_to
        if message.opcode == _MSG:
            flags |= message.raw[16] & _CHECKSUM_PRESENT if len(message.raw) > 16 else 0
            raw = op_msg.build(next_request_id(), answered, document, (), flags)
        else:
            raw = op_query.build_reply(next_request_id(), answered, document)
        return op_compressed.wrap(raw, message.compressor) if message.compressor else raw

    def refuse(self, error: CommandError) -> None:
        """Answer with an error."""
        self.reply(encode(error.reply()))

    def relayed(self, raw: bytes) -> None:
        """Reply with a collected reply of the backend, unchanged."""
        compressor = self.message.compressor
        if self._tail is not None:
            self._tail = raw[-TAIL_BYTES:]
        self.client.write(op_compressed.wrap(raw, compressor) if compressor else raw)
        self._finish(refused_with(raw, _BODY_AT), None, raw)

    def close(self) -> None:
        """Close the client's connection instead of replying."""
        self._finish(HOST_UNREACHABLE, closing=True)

    def require_login(self) -> None:
        """Tell a client whose login was lost with the primary to retry, and close its connection.

        If a server shuts down, drivers discard all connections to it and retry the command. If only a connection ends,
        some retry only if their monitoring of this server reports it as available at that moment.
        """
        if self.expects_reply:
            error = CommandError(
                SHUTDOWN_IN_PROGRESS,
                "the primary that this client authenticated at is no longer available: authenticate again",
            )
            self.client.write(self.frame(encode(labelled(error, self.command).reply())))
        self.close()

    def goes_on_alone(self) -> bool:
        return not self.expects_reply

    def abandon(self) -> None:
        """The client has disconnected."""
        callback, self.on_abandon = self.on_abandon, None
        if callback is not None:
            callback()
        seconds = time.perf_counter() - self.started_seconds
        if seconds >= self.slow.seconds:
            self.slow.report(self, Ended(seconds, disconnected=True))
        self._leave()
        if self.place is not None:
            self.leave_place()

    # --- Sink: a reply that streams -----------------------------------------------------------------------------

    def whole(self, reply: bytes) -> None:
        """The relayed reply in one piece."""
        self.write(reply)
        self._done(reply)

    def write(self, data: bytes) -> None:
        """The next bytes of a relayed reply."""
        if self._code < 0:
            self._code = refused_with(data, _BODY_AT)
        if self._tail is not None:
            self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        self.streamed_bytes += len(data)
        if self._chunks is None:
            self.client.write(data)
        else:
            self._chunks.append(data)

    def done(self) -> None:
        """The relayed reply is complete."""
        self._done(None)

    def _done(self, whole: bytes | None) -> None:
        if self._chunks:
            for raw in _messages(b"".join(self._chunks)):
                self.client.write(op_compressed.wrap(raw, self.message.compressor))
        self._finish(max(self._code, 0), None, whole)

    def deposed(self, reply: bytes) -> None:
        """See ``Sink``: the command may go to the next primary, else its client gets this reply."""
        self.end(Deposed(reply_document(Message.from_bytes(reply)), reply))

    def failed(self, error: BackendUnavailable, partly_sent: bool) -> None:
        """See ``Sink``: the connection to the backend was lost before the relayed reply was complete."""
        self.end(Lost(partly_sent=True) if partly_sent else of_error(error))

    def _finish(
        self,
        code: int,
        document: bytes | None = None,
        message: bytes | None = None,
        acknowledgement: Acknowledgement | None = None,
        closing: bool = False,
    ) -> None:
        # What this holds holds this exchange: its message must not wait for the collector of cycles.
        self.on_abandon = None
        seconds = time.perf_counter() - self.started_seconds
        if self.meter is not None:
            self.meter.done(seconds, code)
        if seconds >= self.slow.seconds:
            ended = Ended(seconds, document, message, acknowledgement, self.streamed_bytes, closed=closing, code=code)
            self.slow.report(self, ended)
        if self._reader is not None:
            self._leave()
        if self.place is not None:
            self.leave_place()
        if closing:
            self.client.close()
            return
        if self.expects_reply:
            self.session.answered_seconds = self.started_seconds + seconds
        self.client.finish()

    def _leave(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            tail = self._tail or b""
            reader.leave(tail, self.session.upstream.process if tail else b"")
        self._tail = None

    def leave_place(self) -> None:
        """Leave ``place`` before the end: the command waits for something else now."""
        place, self.place = self.place, None
        if place is not None:
            place.leave()


def _messages(data: bytes) -> list[bytes]:
    """Whole messages, one after the other."""
    found, position = [], 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "little")
        found.append(data[position : position + size])
        position += size
    return found


def labelled(error: CommandError, command: Command | None) -> CommandError:
    """The same error with the labels that make drivers do the right thing for this command."""
    labels: tuple[str, ...] = ()
    if command is not None and command.has_txn_number:
        if not command.in_transaction or command.name in ENDS_TRANSACTION:
            labels = ("RetryableWriteError",)
        else:
            labels = ("TransientTransactionError",)
    return CommandError(error.code, error.message, labels=labels)
