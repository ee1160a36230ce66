"""Executes ``getMore`` on cursors that are open on the bucket collection."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from catalog.bounded import remember
from catalog.bson.codec import CODEC, TOLERANT
from catalog.bson.raw import MalformedBSON, document, element, fields_of, iter_elements, string_value, unpack_int64
from catalog.errors import UNAUTHORIZED
from catalog.identity import Identity
from catalog.namespaces import Namespace, VirtualCollection
from proxy.reads.cursor_names import MAX_REMEMBERED, CursorNames, rename_cursor
from proxy.request.attempt import CURSOR_NOT_FOUND
from proxy.request.session_fields import SESSION_FIELDS, ClientFields, in_one_document

Resolver: TypeAlias = Callable[[Namespace], VirtualCollection | None]
"""From memory: the virtual collection of this name, ``None`` if there is none or the proxy does not know."""

TOLERANT_RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument, unicode_decode_error_handler="replace"
)
"""For replies, which may quote bytes of the client that are not valid UTF-8."""


class ClientCommand(Protocol):
    """A client's command, as this module needs it."""

    @property
    def name(self) -> str:
        """The command's name as the client spelled it."""

    @property
    def namespace(self) -> Namespace:
        """The namespace that it names; the collection is empty for database-wide commands."""

    @property
    def body(self) -> bytes:
        """The raw command document."""

    @property
    def fields(self) -> Mapping[bytes, tuple[int, int, int]]:
        """Its top level: type byte, start and end of each value."""

    @property
    def sequences(self) -> Sequence[tuple[str, Sequence[bytes]]]:
        """The document sequences by identifier."""


class CursorCommand(Protocol):
    """The parts of a command that decide whether a ``getMore`` must be renamed."""

    @property
    def name(self) -> str:
        """The command's name."""

    @property
    def namespace(self) -> Namespace:
        """The namespace, of which only the database is used."""

    def get(self, name: str) -> Any:
        """One argument, decoded; ``None`` if it is missing."""


class ClientUpstream(Protocol):
    """The client's own connection to the backend."""

    is_closed: bool
    """Whether the client has disconnected."""

    process: bytes
    """The server process of the current or last connection, ``b""`` if it is not known."""

    async def run(self, database: str, body: Mapping[str, Any] | bytes, extra: bytes = b"") -> bytes:
        """Run one command with the raw fields ``extra``; returns the raw reply. Raises ``BackendUnavailable``."""
        ...


class ClientSession(Protocol):
    """A client's session, as this module needs it."""

    @property
    def identity(self) -> Identity:
        """The users that the client has authenticated as."""

    @property
    def owner(self) -> Hashable:
        """The client for fair turns."""

    @property
    def upstream(self) -> ClientUpstream:
        """The client's own connection, opened when it is first used."""


def knows_cursor(cursors: CursorNames, cursor_id: object) -> bool:
    """Whether this cursor is open on buckets, so that a ``getMore`` must be renamed."""
    return isinstance(cursor_id, int) and cursors.backend_namespace(cursor_id) is not None


class NotOnBuckets:
    """Cursors that a ``getMore`` has shown to be on the collection itself; the oldest of too many are forgotten."""

    def __init__(self, max_remembered: int = MAX_REMEMBERED) -> None:
        self._ids: OrderedDict[int, None] = OrderedDict()
        self._max_remembered = max_remembered

    def __contains__(self, cursor_id: object) -> bool:
        return isinstance(cursor_id, int) and cursor_id in self._ids

    def answered(self, asked: bytes, reply: bytes, on_buckets: CursorNames) -> None:
        """The raw ``getMore`` has this raw reply. ``on_buckets``: those that are known to be on buckets."""
        cursor_id = cursor_of(fields_of(asked).get(b"getMore", b""))
        if cursor_id is None or knows_cursor(on_buckets, cursor_id) or error_code(reply) is not None:
            return
        remember(self._ids, cursor_id, None, self._max_remembered)


async def continue_cursor(
    session: ClientSession,
    cursors: CursorNames,
    command: ClientCommand,
    resolve: Resolver,
    fields: ClientFields,
    was_relayed: Callable[[int], bool] = lambda _: False,
) -> bytes:
    """The raw reply to a ``getMore``; error 13 if the cursor belongs to another collection (C23) or user.

    ``fields``: the session fields of the command; ``was_relayed``: whether a command on the collection itself, not on
    its buckets in its place, is known to have opened the cursor.
    """
    if fields.refused_in(command.name):
        return await session.upstream.run(command.namespace.database, in_one_document(command.body, command.sequences))
    asked = fields_of(command.body)
    cursor_id = cursor_of(asked.get(b"getMore", b""))
    database = command.namespace.database
    named = Namespace(database, string_of(asked.get(b"collection", b"")))
    backend = cursors.backend_namespace(cursor_id) if isinstance(cursor_id, int) else None
    if backend is not None and isinstance(cursor_id, int):
        if named != backend.logical:
            # The backend checks the owner of the cursor first.
            if named == backend:
                asked = {**asked, b"collection": string_value(backend.logical.collection.encode())}
                return _names_exchanged(await session.upstream.run(database, _body(asked), fields.extra()), backend)
            return _named_logically(await session.upstream.run(database, _body(asked), fields.extra()), backend)
        return await _continue(session, cursors, cursor_id, backend, asked, fields)
    reply = await session.upstream.run(database, in_one_document(command.body, command.sequences))
    if error_code(reply) != UNAUTHORIZED or not isinstance(cursor_id, int) or fields.in_transaction:
        return reply
    if was_relayed(cursor_id):
        return reply
    collection = resolve(named)
    if collection is None:
        return reply
    # Another proxy may have opened the cursor on the buckets.
    on_buckets = await _continue(session, cursors, cursor_id, collection.buckets, asked, fields)
    return reply if error_code(on_buckets) == UNAUTHORIZED else on_buckets


async def continue_as_it_is(session: ClientSession, cursors: CursorNames, command: ClientCommand) -> bytes | None:
    """The raw reply to a ``getMore`` that has fields of unusual types, which the backend judges.

    ``None`` if it does not name the collection of a cursor that is known to be on buckets, or is damaged.
    """
    try:
        asked = list(iter_elements(in_one_document(command.body, command.sequences)))
    except MalformedBSON:
        return None
    names, fields = [name for name, _ in asked], dict(asked)
    cursor_id = cursor_of(fields.get(b"getMore", b""))
    backend = None if cursor_id is None else cursors.backend_namespace(cursor_id)
    if cursor_id is None or backend is None or names.count(b"collection") != 1:
        return None
    if Namespace(command.namespace.database, string_of(fields[b"collection"])) != backend.logical:
        return None
    stored = {b"collection": string_value(backend.collection.encode())}
    body = document(element(name, stored.get(name, value)) for name, value in asked)
    reply = await session.upstream.run(backend.database, body)
    return answered_more(reply, cursors, cursor_id, backend, session.upstream.process)


def cursor_of(value: bytes) -> int | None:
    """The cursor id in an element value; ``None`` if that is not of type long."""
    return int(unpack_int64(value, 1)[0]) if value[:1] == b"\x12" else None


def string_of(value: bytes) -> str:
    """The text of an element value; ``""`` if that is not a string, or not valid UTF-8."""
    try:
        return value[5:-1].decode() if value[:1] == b"\x02" else ""
    except UnicodeDecodeError:
        return ""


def _body(asked: Mapping[bytes, bytes]) -> bytes:
    """The command without its session fields and ``$db``, with all other bytes unchanged."""
    left_out = SESSION_FIELDS | {b"$db"}
    return document(element(name, value) for name, value in asked.items() if name not in left_out)


async def _continue(
    session: ClientSession,
    cursors: CursorNames,
    cursor_id: int,
    backend: Namespace,
    asked: Mapping[bytes, bytes],
    fields: ClientFields,
) -> bytes:
    body = _body({**asked, b"collection": string_value(backend.collection.encode())})
    reply = await session.upstream.run(backend.database, body, fields.extra())
    return answered_more(reply, cursors, cursor_id, backend, session.upstream.process)


def answered_more(reply: bytes, cursors: CursorNames, cursor_id: int, backend: Namespace, process: bytes) -> bytes:
    """The client's reply to a ``getMore`` from that of this server process; records whether the cursor is open."""
    renamed, left, answered = rename_cursor(reply, backend.logical)
    if answered is None:
        if error_code(reply) == CURSOR_NOT_FOUND:
            cursors.ended(cursor_id)
    elif left:
        cursors.opened(cursor_id, backend, process)
    else:
        cursors.ended(cursor_id)
    return renamed


def is_ok(reply: bytes) -> bool:
    """Whether a raw command reply has ``ok: 1``, in any number type (C26)."""
    return RawBSONDocument(reply, TOLERANT_RAW).get("ok") == 1


_CODE: Final = b"code\0"
"""Stands somewhere in each reply with an error code; most others need not be decoded."""


def error_code(reply: bytes) -> int | None:
    """The code of an error reply; ``None`` for a successful one."""
    if _CODE not in reply:
        return None
    code = None if is_ok(reply) else RawBSONDocument(reply, TOLERANT_RAW).get("code")
    return code if isinstance(code, int) else None


def _named_logically(reply: bytes, backend: Namespace) -> bytes:
    """The backend's error with the name of the collection instead of its bucket collection."""
    return _reworded(reply, lambda text: text.replace(str(backend), str(backend.logical)))


def _names_exchanged(reply: bytes, backend: Namespace) -> bytes:
    """The backend's error with the name of the collection for its bucket collection, and the reverse."""
    stored, given = str(backend), str(backend.logical)
    return _reworded(reply, lambda text: given.join(part.replace(given, stored) for part in text.split(stored)))


def _reworded(reply: bytes, reword: Callable[[str], str]) -> bytes:
    said = bson.decode(reply, codec_options=TOLERANT)
    if "errmsg" in said:
        said["errmsg"] = reword(str(said["errmsg"]))
    return bson.encode(said, codec_options=CODEC)
