"""Splits a client's command into its body and its session fields.

Session fields are sent to the backend as the client encoded them; only the body is decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import bson
from bson import Int64

from catalog.bson.codec import CODEC
from catalog.bson.faithful import MAX_BYTES, Unfaithful, faithfully_decoded
from catalog.bson.raw import ARRAY, OBJECT, MalformedBSON, document, element, iter_elements, iter_positions, sub_array
from proxy.request.command_table import NUMBERS_STATEMENTS, SEEKING_WRITES, TABLE, WRITES
from proxy.request.field_types import is_plain
from rewrite.statements import Statements, piece_of

TRANSACTION_FIELDS = frozenset({b"txnNumber", b"autocommit", b"startTransaction"})
_OF_RETRYABLE_WRITES = frozenset({b"txnNumber"})
STATEMENT_FIELDS = frozenset({b"stmtId", b"stmtIds"})
SESSION_FIELDS = (
    TRANSACTION_FIELDS
    | STATEMENT_FIELDS
    | frozenset(
        {
            b"lsid",
            b"$clusterTime",
            b"$readPreference",
            b"apiVersion",
            b"apiStrict",
            b"apiDeprecationErrors",
            b"$client",
            b"$configServerState",
            b"$configTime",
            b"$topologyTime",
        }
    )
)
"""Fields about the session, the routing and the API."""

GOSSIP: Final = ("$clusterTime", "operationTime")
"""The cluster times that members of a cluster include in every reply."""


MOST_FIELDS: Final = 1_000

MAX_COMMAND_BYTES: Final = 2 * MAX_BYTES
"""Maximum size of a command that is analysed, including its session fields."""

_LONGEST_IDS_BYTES: Final = 2 * 1024 * 1024
"""Maximum size of ``stmtIds``; enough for the maximum number of statements (W94)."""


class Undecodable(ValueError):
    """The command must be relayed: it is not BSON, cannot be decoded without loss, or has unusual types."""


_UUID = b"\x05\x10\0\0\0\x04"
"""The beginning of an element value that is a UUID."""


@dataclass(frozen=True, slots=True)
class ClientFields:
    """One command in parts. ``session``: raw element values by name, in the client's order."""

    body: Mapping[str, Any]
    session: Mapping[bytes, bytes]

    @property
    def in_transaction(self) -> bool:
        """Whether the command belongs to a multi-document transaction (X1)."""
        return self.session.get(b"autocommit") == b"\x08\x00"

    @property
    def has_txn_number(self) -> bool:
        """Whether this is a retryable write or part of a transaction."""
        return b"txnNumber" in self.session

    def refused_in(self, name: str) -> bool:
        """Whether every server refuses the command ``name`` because of its transaction fields (X1).

        Outside of a transaction, they are for retryable writes, which have a ``txnNumber`` and nothing else. Only some
        writes number their statements.
        """
        if b"stmtIds" in self.session and name not in NUMBERS_STATEMENTS:
            return True
        found = self.session.keys() & TRANSACTION_FIELDS
        return bool(found) and not self.in_transaction and (name not in WRITES or found != _OF_RETRYABLE_WRITES)

    @property
    def statement_ids(self) -> tuple[int, ...]:
        """The ids of ``stmtIds``; empty when the client numbers by position (W102). Raises ``Undecodable``."""
        value = self.session.get(b"stmtIds", b"")
        if not value:
            return ()
        try:
            numbers = _decoded(b"stmtIds", value) if value[0] == ARRAY and len(value) <= _LONGEST_IDS_BYTES else None
        except bson.errors.InvalidBSON as error:
            raise Undecodable(str(error)) from None
        if not isinstance(numbers, list) or not all(type(number) in (int, Int64) for number in numbers):
            raise Undecodable("statement ids that are no list of numbers")
        return tuple(map(int, numbers))

    def extra(self, statement: int | None = None, *, starts_transaction: bool = True) -> bytes:
        """The raw session fields for a step on the client's behalf.

        In a transaction all of them, ``startTransaction`` only while ``starts_transaction``; otherwise the
        ``txnNumber`` goes along only for a ``statement``, and names it.
        """
        left_out = STATEMENT_FIELDS
        if not self.in_transaction and statement is None:
            left_out |= TRANSACTION_FIELDS
        elif not starts_transaction:
            left_out |= {b"startTransaction"}
        kept = [element(name, value) for name, value in self.session.items() if name not in left_out]
        if statement is not None and not self.in_transaction:
            kept.append(bson.encode({"stmtId": statement})[4:-1])
        return b"".join(kept)

    @property
    def own_session(self) -> bytes | None:
        """The raw ``lsid`` of the client (type byte and value) if it is valid, otherwise ``None``."""
        value = self.session.get(b"lsid")
        if value is None or value[0] != OBJECT:
            return None
        session_id = dict(iter_elements(value[1:])).get(b"id", b"")
        return value if session_id[:6] == _UUID else None

    def service_extra(self, statement: int, session: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The session fields under which the proxy's account records a client's retryable write.

        ``session`` is the one that takes the place of the client's (``proxy.request.service_sessions``); ``None`` where
        the client has sent none that is valid, which the backend then says.
        """
        names = (b"txnNumber",) if session is not None else (b"lsid", b"txnNumber")
        fields = {name.decode(): _decoded(name, self.session[name]) for name in names if name in self.session}
        return {**fields, "stmtId": statement, **({} if session is None else {"lsid": session})}


def in_one_document(body: bytes, sequences: Iterable[tuple[str, Sequence[bytes]]]) -> bytes:
    """The whole command, session fields and all, with its document sequences as arrays and without ``$db``."""
    elements = [element(name, value) for name, value in iter_elements(body) if name != b"$db"]
    for identifier, documents in sequences:
        elements.append(sub_array(identifier.encode(), (bytes([OBJECT]) + each for each in documents)))
    return document(elements)


def _decoded(name: bytes, value: bytes) -> Any:
    return bson.decode(document([element(name, value)]), codec_options=CODEC)[name.decode()]


def take_apart(body: bytes, sequences: Sequence[tuple[str, Sequence[bytes]]], name: str = "") -> ClientFields:
    """From the raw body of a message and its document sequences; ``name`` is the command's.

    Writes that search documents are taken apart in pieces where they cannot be decoded as a whole: they may hold
    ``Statements`` in place of a list, and raw documents (``catalog.bson.faithful``). Raises ``Undecodable`` for what
    only the backend can judge.
    """
    whole_bytes = len(body) + sum(sum(map(len, documents)) for _, documents in sequences)
    if whole_bytes > MAX_COMMAND_BYTES and name not in SEEKING_WRITES:
        raise Undecodable(f"{whole_bytes} bytes are too many to be analysed")
    session, asked = _without_session(body)
    _check_transaction(session, name)
    try:
        if whole_bytes <= MAX_COMMAND_BYTES:
            folded = [
                sub_array(identifier.encode(), (bytes([OBJECT]) + each for each in documents))
                for identifier, documents in sequences
            ]
            whole = document([*(body[kind:end] for kind, _, end in asked.values()), *folded])
            try:
                return ClientFields(faithfully_decoded(whole), session)
            except Unfaithful:
                if name not in SEEKING_WRITES:
                    raise
        return ClientFields(_in_pieces(body, asked, sequences, TABLE[name].statements), session)
    except Unfaithful as error:
        raise Undecodable(str(error)) from None


def session_of(body: bytes) -> ClientFields:
    """The session alone. Raises ``Undecodable``."""
    return ClientFields({}, _without_session(body)[0])


def checked_session_of(body: bytes, name: str) -> ClientFields:
    """As ``session_of``; raises ``Undecodable`` also where ``take_apart`` does so because of the session."""
    fields = session_of(body)
    _check_transaction(fields.session, name)
    return fields


def _check_transaction(session: Mapping[bytes, bytes], name: str) -> None:
    if ClientFields({}, session).refused_in(name):
        raise Undecodable("the backend refuses such a transaction")


Positions = Mapping[bytes, tuple[int, int, int]]
"""By name: the offsets of an element's type byte, of the start of its value and of its end."""


def _without_session(body: bytes) -> tuple[dict[bytes, bytes], Positions]:
    """The raw session fields, and the positions of all other fields in ``body``, which may be long."""
    session: dict[bytes, bytes] = {}
    asked: dict[bytes, tuple[int, int, int]] = {}
    try:
        for kind, name, start, end in iter_positions(body):
            value = body[kind : kind + 1]
            if end - start <= _LONGEST_IDS_BYTES and name in SESSION_FIELDS:
                value += body[start:end]
                session.setdefault(name, value)
            elif end - start <= MAX_BYTES:
                value += body[start:end]
            # Longer values are judged by their type alone, which must not require parsing them.
            if not is_plain(name, value):
                raise Undecodable(f"{name!r} is of an unusual type")
            if name in asked:
                raise Undecodable("a name stands twice in the command")
            if name not in SESSION_FIELDS and name != b"$db":
                asked[name] = (kind, start, end)
                if len(asked) > MOST_FIELDS:
                    raise Undecodable("no command has so many fields")
    except MalformedBSON as error:
        raise Undecodable(str(error)) from None
    return session, asked


def _in_pieces(
    body: bytes, asked: Positions, sequences: Sequence[tuple[str, Sequence[bytes]]], statements: bytes | None
) -> dict[str, Any]:
    pieces: dict[str, Any] = {}
    for name, (kind, start, end) in asked.items():
        if name == statements and body[kind] == ARRAY:
            pieces[name.decode()] = Statements(body[start:end])
        else:
            pieces |= piece_of(body, kind, name, start, end)
    for identifier, documents in sequences:
        if identifier.encode() != statements or identifier in pieces:
            raise Unfaithful(f"{identifier} is no sequence of statements")
        pieces[identifier] = Statements(documents)
    return pieces
