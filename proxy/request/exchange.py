"""One running command: its client, the path of its reply, and that there is exactly one reply."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import bson

from catalog.bson.codec import CODEC
from catalog.errors import BackendUnavailable, CommandError
from proxy.request.command import Command
from proxy.request.session import Session
from proxy.upstream.connection import UpstreamLost
from proxy.wire import op_compressed, op_msg, op_query
from proxy.wire.message import Message, Opcode
from proxy.wire.request_ids import next_request_id

_MSG: Final = int(Opcode.MSG)
_CHECKSUM_PRESENT: Final = op_msg.CHECKSUM_PRESENT
_LARGE_BYTES: Final = 64 * 1024

SHUTDOWN_IN_PROGRESS: Final = 91

TAIL_BYTES: Final = 2_048
"""Behind its batch a reply has the cursor's id, its name of up to 255 bytes, and times."""


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
        """The command is answered; continue with the next."""
        ...

    def close(self) -> None:
        """Close after the queued bytes are sent."""
        ...


class Pending(Protocol):
    """A running command, as the client's connection sees it."""

    def abandon(self) -> None:
        """The client is gone."""
        ...


class Meter(Protocol):
    """Counts the requests of one command that go one way."""

    def done(self, seconds: float, *, failed: bool = False) -> None:
        """One more, answered after ``seconds``."""
        ...


def encode(document: Mapping[str, Any]) -> bytes:
    """A reply document of the proxy."""
    return bson.encode(document, codec_options=CODEC)


class Exchange:
    """The path of the reply to one command. Also the sink of a relayed reply."""

    __slots__ = (
        "_chunks",
        "client",
        "command",
        "expects_reply",
        "message",
        "meter",
        "on_abandon",
        "on_leave",
        "on_lost",
        "session",
        "started_seconds",
        "tail",
    )

    def __init__(
        self,
        session: Session,
        client: Client,
        message: Message,
        *,
        expects_reply: bool,
    ) -> None:
        self.session = session
        self.client = client
        self.message = message
        self.expects_reply = expects_reply
        self.on_lost: Callable[[Callable[[], None]], None] | None = None
        self.on_abandon: Callable[[], None] | None = None
        self.on_leave: Callable[[], None] | None = None
        """Called exactly once at the end, also if the client has disconnected."""
        self.tail: bytes | None = None
        """Receives the last bytes of a relayed reply, if needed."""
        self.command: Command | None = None
        self.meter: Meter | None = None
        self.started_seconds = 0.0
        # A client that compresses gets compressed replies, so relayed ones are collected for it.
        self._chunks: list[bytes] | None = [] if message.compressor else None

    # --- replies of the proxy -----------------------------------------------------------------------------------

    def reply(self, document: bytes | None, *, failed: bool = False) -> None:
        """Reply with a raw document, or with nothing, and finish."""
        if document is not None and self.expects_reply:
            if len(document) > _LARGE_BYTES and self.takes_plain_replies:
                # Written after its header, to save copying both.
                self.client.write(op_msg.head(next_request_id(), self.message.request_id, len(document)))
                self.client.write(document)
            else:
                self.client.write(self.frame(document))
        self._finish(failed)

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
        self.reply(encode(error.reply()), failed=True)

    def relayed(self, raw: bytes) -> None:
        """Reply with a collected reply of the backend, unchanged."""
        compressor = self.message.compressor
        if self.tail is not None:
            self.tail = raw[-TAIL_BYTES:]
        self.client.write(op_compressed.wrap(raw, compressor) if compressor else raw)
        self._finish(False)

    def close(self) -> None:
        """Close the client's connection instead of replying."""
        self._finish(True, closing=True)

    def come_again(self) -> None:
        """Tell a client whose login was lost with the primary to retry, and close its connection.

        A driver leaves all its connections to a server that shuts down, and sends a retryable command again. At the
        mere end of a connection some do so only if their watch over this server says just then that it is well.
        """
        if self.expects_reply:
            error = CommandError(
                SHUTDOWN_IN_PROGRESS,
                "the primary that this client authenticated at is no longer available: authenticate again",
            )
            self.client.write(self.frame(encode(labelled(error, self.command).reply())))
        self.close()

    def abandon(self) -> None:
        """The client is gone."""
        callback, self.on_abandon = self.on_abandon, None
        self.on_lost = None
        if callback is not None:
            callback()
        self._leave()

    # --- Sink: a reply that streams -----------------------------------------------------------------------------

    def whole(self, reply: bytes) -> None:
        """The relayed reply in one piece."""
        self.write(reply)
        self.done()

    def write(self, data: bytes) -> None:
        """The next bytes of a relayed reply."""
        if self.tail is not None:
            self.tail = (self.tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        if self._chunks is None:
            self.client.write(data)
        else:
            self._chunks.append(data)

    def done(self) -> None:
        """The relayed reply is complete."""
        if self._chunks:
            for raw in _messages(b"".join(self._chunks)):
                self.client.write(op_compressed.wrap(raw, self.message.compressor))
        self._finish(False)

    def deposed(self, reply: bytes) -> bool:
        """See ``Sink``: the command may go to the next primary, else its client gets this reply."""

        def pass_on() -> None:
            self.write(reply)
            self.done()

        return self._may_go_elsewhere(pass_on)

    def _may_go_elsewhere(self, otherwise: Callable[[], None]) -> bool:
        decide, self.on_lost = self.on_lost, None
        if decide is None:
            return False
        decide(otherwise)
        return True

    def failed(self, error: BackendUnavailable, partly_sent: bool) -> None:
        """The connection to the backend was lost before the relayed reply was complete."""
        if isinstance(error, UpstreamLost) and not partly_sent and self._may_go_elsewhere(self.close):
            return
        if partly_sent or self.session.identity or isinstance(error, UpstreamLost):
            # As without a proxy between them; and a login goes with the connection. A driver makes both anew.
            self.close()
        else:
            self.refuse(labelled(error, self.command))

    def _finish(self, failed: bool, *, closing: bool = False) -> None:
        # What these hold holds this exchange: its message must not wait for the collector of cycles.
        self.on_abandon = None
        self.on_lost = None
        if self.meter is not None:
            self.meter.done(time.perf_counter() - self.started_seconds, failed=failed)
        if self.on_leave is not None:
            self._leave()
        if closing:
            self.client.close()
        else:
            self.client.finish()

    def _leave(self) -> None:
        callback, self.on_leave = self.on_leave, None
        if callback is not None:
            callback()


def _messages(data: bytes) -> list[bytes]:
    """Whole messages, one after the other."""
    found, position = [], 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "little")
        found.append(data[position : position + size])
        position += size
    return found


_TRANSACTION_ENDS = ("abortTransaction", "commitTransaction")


def labelled(error: CommandError, command: Command | None) -> CommandError:
    """The same error with the labels that make drivers do the right thing for this command."""
    labels: tuple[str, ...] = ()
    if command is not None and command.has_txn_number:
        if not command.in_transaction or command.name in _TRANSACTION_ENDS:
            labels = ("RetryableWriteError",)
        else:
            labels = ("TransientTransactionError",)
    return CommandError(error.code, error.message, labels=labels)
