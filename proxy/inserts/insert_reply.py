"""Builds the reply to an insert command from the results of its measurements (W67, W90, W95, W97)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

from catalog.bson.codec import encode
from catalog.bson.raw import document, element
from catalog.errors import CommandError
from catalog.ports import Acknowledgement, Confirmation
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.write_errors import ERRORS_AT_ONCE, WriteErrors

BULK_DOCUMENTS: Final = 100
"""An insert of more documents is large: see ``InsertReply.is_bulk``."""

_PLAIN_REPLY = struct.Struct("<i3si4sdB")
_PLAIN_REPLY_BYTES = _PLAIN_REPLY.size


@lru_cache(maxsize=1024)
def plain_reply(stored: int) -> bytes:
    """The encoded reply ``{n: stored, ok: 1.0}``, which is by far the most frequent."""
    return _PLAIN_REPLY.pack(_PLAIN_REPLY_BYTES, b"\x10n\0", stored, b"\x01ok\0", 1.0, 0)


ReplyToInsert: TypeAlias = Callable[[bytes | None, Acknowledgement | None], None]
"""Takes the reply document, ``None`` if the client wants none, and the acknowledgement of the last commit, if any."""


class Asker(Protocol):
    """The client of an insert."""

    @property
    def origin(self) -> object:
        """The command; ``None`` if it has none."""
        ...

    def is_gone(self) -> bool:
        """Whether the client has disconnected."""
        ...


class InsertReply:
    """Collects the results of one command's measurements; implements ``Writer``."""

    __slots__ = (
        "_acknowledgement",
        "_asker",
        "_confirmations",
        "_errors",
        "_failure",
        "_insert",
        "_on_stored",
        "_outstanding",
        "_reply",
        "_staged",
        "_stored",
        "is_bulk",
    )

    def __init__(
        self,
        insert: InsertCommand,
        reply: ReplyToInsert,
        stored: Callable[[], None] | None = None,
        asker: Asker | None = None,
    ) -> None:
        """``reply`` is called once.

        ``stored`` is called before that when only a write concern is still waited for; ``asker`` is the client.
        """
        self._on_stored = stored
        self._asker = asker
        self._confirmations: list[Confirmation] = []
        self._insert = insert
        self._reply = reply
        self._outstanding = 0
        self._stored = 0
        self._errors: WriteErrors | None = None
        self._acknowledgement: Acknowledgement | None = None
        self._failure: CommandError | None = None
        self._staged = False
        self.is_bulk = len(insert.documents) > BULK_DOCUMENTS
        """Whether the insert is large, so that its batches use the lane for large inserts."""

    def expect(self) -> None:
        """One more measurement will be settled."""
        self._outstanding += 1

    def refuse(self, index: int, error: CommandError) -> None:
        """A document was not staged: it is not a valid measurement."""
        if self._errors is None:
            self._errors = WriteErrors()
        self._errors.add(index, error)

    @property
    def has_refused(self) -> bool:
        """Whether a document was refused, or could not be written."""
        return self._errors is not None

    def fail(self, error: CommandError) -> None:
        """The command as a whole fails."""
        self._failure = error.with_traceback(None)

    def staged(self) -> None:
        """All documents are staged or refused: the reply is built as soon as no measurement is outstanding."""
        self._staged = True
        if self._outstanding == 0:
            self._finish()

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        count = len(indexes)
        self._outstanding -= count
        if error is None:
            self._stored += count
            if acknowledgement is not None:
                self._acknowledged(acknowledgement)
        else:
            for index in indexes:
                self.refuse(index, error)
        if self._staged and self._outstanding == 0:
            self._finish()

    def _acknowledged(self, acknowledgement: Acknowledgement) -> None:
        known, confirmation = self._acknowledgement, acknowledgement.confirmation
        if known is None or known.write_concern_error is None:
            self._acknowledgement = acknowledgement
        if confirmation is not None and not (self._confirmations and self._confirmations[-1] is confirmation):
            self._confirmations.append(confirmation)

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> None:
        """See ``Writer``: the client gets ``error``, which says that the outcome is unknown."""
        self.settle(indexes, error, None)

    def origins(self) -> Sequence[object]:
        return () if self._asker is None or self._asker.origin is None else (self._asker.origin,)

    def _finish(self) -> None:
        acknowledgement = self._acknowledgement
        if not self._insert.expects_reply:
            self._reply(None, acknowledgement)
            return
        if self._confirmations:
            self._wait()
            return
        if self._errors is None and self._failure is None and (acknowledgement is None or acknowledgement.is_plain):
            self._reply(plain_reply(self._stored), acknowledgement)
            return
        errors = self._errors or WriteErrors()
        failure = self._failure or self._failure_of(errors)
        if failure is not None:
            self._reply(encode(failure.reply()), acknowledgement)
            return
        self._encode(errors, errors.entries(first_only=self._insert.ordered), [])

    def _failure_of(self, errors: WriteErrors) -> CommandError | None:
        """The error with which the whole command fails although a part may be stored: a driver sends it again.

        If none will, the client must learn what is stored: it would send that again, too.
        """
        failure = errors.failure
        if failure is None or not self._stored:
            return failure
        return failure if failure.labels and self._insert.txn_number is not None else None

    def _encode(self, errors: WriteErrors, entries: Iterator[bytes], encoded: list[bytes]) -> None:
        """Encode some errors; the others in later turns of the event loop."""
        piece = next(entries, None)
        if piece is not None:
            encoded.append(piece)
            if len(encoded) * ERRORS_AT_ONCE < len(errors) and not self._insert.ordered:
                asyncio.get_running_loop().call_soon(self._encode, errors, entries, encoded)
                return
        labels = errors.labels(first_only=self._insert.ordered)
        document = _stored_document(self._stored, self._acknowledgement, labels, encoded)
        self._reply(document, self._acknowledgement)

    def _wait(self) -> None:
        """All measurements are stored or refused: wait for the write concerns, one after the other."""
        if self._on_stored is not None:
            self._on_stored()
        asker = self._asker
        self._confirmations.pop(0).when_known(self._confirmed, _stays if asker is None else asker.is_gone)

    def _confirmed(self, outcome: Acknowledgement | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self._failure = self._failure or outcome
        else:
            self._acknowledged(outcome)
        self._finish()


def _stays() -> bool:
    return False


def stored_reply(stored: int, acknowledgement: Acknowledgement) -> bytes:
    """The reply to an insert whose documents are all stored; ``stored``: their number."""
    return _stored_document(stored, acknowledgement, (), ())


def _stored_document(
    stored: int, acknowledgement: Acknowledgement | None, labels: Sequence[str], entries: Sequence[bytes]
) -> bytes:
    """``entries``: the elements of ``writeErrors``."""
    acknowledgement = acknowledgement or Acknowledgement()
    fields = dict(acknowledgement.fields)
    first: dict[str, Any] = {"n": stored}
    for name in ("electionId", "opTime"):
        if name in fields:
            first[name] = fields.pop(name)
    last: dict[str, Any] = {}
    if labels:
        last["errorLabels"] = list(labels)
    if acknowledgement.write_concern_error is not None:
        last["writeConcernError"] = acknowledgement.write_concern_error
    last["ok"] = 1.0
    last.update(fields)
    array = element(b"writeErrors", b"\x04" + document(entries)) if entries else b""
    return document((encode(first)[4:-1], array, encode(last)[4:-1]))
