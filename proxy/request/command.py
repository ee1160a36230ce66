"""One client command: parsed once, shallow, values decoded only when asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import bson

from catalog.bson.codec import CODEC
from catalog.bson.raw import MalformedBSON, iter_positions
from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.wire import op_msg
from proxy.wire.framing import ARRAY, DOCUMENT, STRING, SYMBOL, TYPE_NAMES, Element, top_level
from proxy.wire.message import Message

_BAD_DATABASE_BYTES: Final = frozenset('\0/\\. "')

_TAKES_NO_SYMBOL: Final = frozenset({b"aggregate", b"find"})
"""Commands whose collection must be a string; to all others a symbol is one, and here it becomes one."""
_STRING_TYPE: Final = bytes([STRING])


MOST_FIELDS: Final = 10_000
"""At the top of a command; walking more would hold the event loop, and no command has as many."""

_MANY_BYTES: Final = 3 * MOST_FIELDS
FAILED_TO_PARSE: Final = 9

MOST_DECODED_BYTES: Final = 64 * 1024
_NESTED: Final = frozenset((DOCUMENT, ARRAY, 0x0F))
"""Documents, arrays, code with a scope."""


STARTS_TRANSACTION: Final = b"startTransaction"
"""The field of the first command of a transaction."""


class Command:
    """A command as a client sent it. Immutable by convention.

    ``body`` is the raw kind-0 document, ``fields`` its top level (name → type byte, start and end of the value),
    ``sequences`` the document sequences as (identifier, raw documents). ``namespace`` has the value of the first
    field as its collection when that is a string, else ``""`` (database-wide).
    """

    __slots__ = (
        "body",
        "exhaust_allowed",
        "expects_reply",
        "fields",
        "message",
        "name",
        "namespace",
        "repeats_fields",
        "sequences",
    )

    def __init__(
        self,
        name: str,
        namespace: Namespace,
        body: bytes,
        fields: dict[bytes, Element],
        message: Message,
        sequences: tuple[op_msg.Sequence, ...] = (),
        flags: int = 0,
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.body = body
        self.fields = fields
        self.message = message
        self.sequences = sequences
        self.expects_reply = not flags & op_msg.MORE_TO_COME
        self.exhaust_allowed = bool(flags & op_msg.EXHAUST_ALLOWED)
        self.repeats_fields = False
        """Whether a name occurs more than once at the top level."""

    @property
    def in_transaction(self) -> bool:
        """Whether it belongs to a multi-document transaction (``autocommit: false``)."""
        return b"autocommit" in self.fields

    @property
    def has_txn_number(self) -> bool:
        """Whether it is a retryable write or part of a transaction."""
        return b"txnNumber" in self.fields

    def get(self, name: str, most_bytes: int = MOST_DECODED_BYTES) -> Any:
        """One top-level value decoded with ``CODEC``; ``None`` when there is none. Raises ``CommandError`` (22).

        A document or array of more than ``most_bytes`` is not decoded, so that none holds the event loop: ``None``.
        """
        element = self.fields.get(name.encode())
        if element is None:
            return None
        kind, start, end = element
        if end - start > most_bytes and kind in _NESTED:
            return None
        value = self.body[start:end]
        size = 4 + 1 + 2 + len(value) + 1
        document = size.to_bytes(4, "little") + bytes((kind,)) + b"v\0" + value + b"\0"
        try:
            return bson.decode(document, codec_options=CODEC)["v"]
        except (bson.errors.InvalidBSON, RecursionError) as error:
            raise CommandError(22, f"{name}: {error}") from None

    def raw(self, name: bytes) -> bytes:
        """One top-level value as it stands in the body; ``b""`` when there is none."""
        element = self.fields.get(name)
        return b"" if element is None else self.body[element[1] : element[2]]

    def without(self, *names: bytes) -> bytes:
        """The body without these top-level fields."""
        kept = b"".join(
            self.body[start - len(name) - 2 : end] for name, (_, start, end) in self.fields.items() if name not in names
        )
        return (len(kept) + 5).to_bytes(4, "little") + kept + b"\0"

    def decode(self) -> dict[str, Any]:
        """The whole command with its sequences folded in, deep. Raises ``CommandError`` (22)."""
        try:
            document: dict[str, Any] = dict(bson.decode(self.body, codec_options=CODEC))
            for identifier, documents in self.sequences:
                document[identifier] = [bson.decode(raw, codec_options=CODEC) for raw in documents]
        except bson.errors.InvalidBSON as error:
            raise CommandError(22, str(error)) from None
        return document

    def __repr__(self) -> str:
        return f"Command({self.name}, {self.namespace})"


def parse_command(message: Message) -> Command:
    """From an OP_MSG; raises ``ProtocolError`` or ``CommandError`` as ``op_msg.parse``, and for a bad ``$db``."""
    parts = op_msg.parse(message)
    body = parts.body
    if len(body) > _MANY_BYTES:
        _check_fields(body)
    repeated: list[bytes] = []
    fields = top_level(body, repeated=repeated)
    database = _database(body, fields)
    for identifier, _ in parts.sequences:
        if identifier.encode() in fields:
            raise CommandError(40433, f"Duplicate field between body and document sequence {identifier}")
    command = _command(database, body, fields, message, parts.sequences, parts.flags)
    command.repeats_fields = bool(repeated)
    return command


def _check_fields(body: bytes) -> None:
    count = 0
    try:
        for _ in iter_positions(body):
            count += 1
            if count > MOST_FIELDS:
                raise CommandError(FAILED_TO_PARSE, f"the command has more than {MOST_FIELDS} fields")
    except MalformedBSON:
        return  # ``top_level`` says so in the server's words


def parse_legacy_command(message: Message, database: str, body: bytes) -> Command:
    """From the query document of an OP_QUERY on ``<database>.$cmd``."""
    return _command(database, body, top_level(body), message, (), 0)


def _command(
    database: str,
    body: bytes,
    fields: dict[bytes, Element],
    message: Message,
    sequences: tuple[op_msg.Sequence, ...],
    flags: int,
) -> Command:
    for first, (kind, start, end) in fields.items():
        if kind == SYMBOL and first not in _TAKES_NO_SYMBOL:
            fields[first] = (STRING, start, end)
            return _command(database, body[:4] + _STRING_TYPE + body[5:], fields, message, sequences, flags)
        try:
            collection = body[start + 4 : end - 1].decode() if kind == STRING else ""
            name = first.decode()
        except UnicodeDecodeError:
            # The backend refuses it in its own words; no collection of ours has such a name.
            collection, name = "", first.decode(errors="replace")
        return Command(name, Namespace(database, collection), body, fields, message, sequences, flags)
    return Command("", Namespace(database, ""), body, fields, message, sequences, flags)


def _database(body: bytes, fields: dict[bytes, Element]) -> str:
    element = fields.get(b"$db")
    if element is None:
        raise CommandError(40571, "OP_MSG requests require a $db argument")
    kind, start, end = element
    if kind != STRING:
        raise CommandError(13111, f"wrong type for field ($db) {TYPE_NAMES.get(kind, kind)} != string")
    return _checked_database(body[start + 4 : end - 1])


@lru_cache(maxsize=4096)
def _checked_database(raw: bytes) -> str:
    if b"\0" in raw:
        raise CommandError(73, "namespaces cannot have embedded null characters")
    try:
        database = raw.decode()
    except UnicodeDecodeError:
        raise CommandError(73, "Invalid database name: not UTF-8") from None
    if "." in database:
        raise CommandError(73, f"'.' is an invalid character in the database name: {database}")
    if not 0 < len(raw) < 64 or not _BAD_DATABASE_BYTES.isdisjoint(database):
        raise CommandError(73, f"Invalid database name: '{database}'")
    return database
