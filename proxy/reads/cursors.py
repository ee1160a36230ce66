"""``getMore`` on cursors that the backend keeps under the name of the bucket collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import CODEC, TOLERANT
from catalog.bson.raw import document, element, fields_of, string_value, unpack_int64
from catalog.errors import UNAUTHORIZED
from catalog.identity import Identity
from catalog.namespaces import Namespace
from proxy.reads.cursor_names import CursorNames, rename_cursor
from proxy.request.attempt import CURSOR_NOT_FOUND
from proxy.request.session_fields import SESSION_FIELDS, ClientFields, in_one_document
from rewrite.plan import Resolve

TOLERANT_RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument, unicode_decode_error_handler="replace"
)
"""Replies may quote bytes of the client that are no UTF-8."""


class ClientCommand(Protocol):
    """What is needed of a client's command."""

    @property
    def name(self) -> str:
        """The command's name as the client spelled it."""

    @property
    def namespace(self) -> Namespace:
        """What it names; the collection is empty for database-wide commands."""

    @property
    def body(self) -> bytes:
        """The raw command document."""

    @property
    def sequences(self) -> Sequence[tuple[str, Sequence[bytes]]]:
        """The document sequences by identifier."""


class CursorCommand(Protocol):
    """What tells whether a ``getMore`` needs a new name."""

    @property
    def name(self) -> str:
        """The command's name."""

    @property
    def namespace(self) -> Namespace:
        """Its database counts."""

    def get(self, name: str) -> Any:
        """One argument, decoded; ``None`` when there is none."""


class ClientUpstream(Protocol):
    """The client's own connection to the backend."""

    is_closed: bool
    """The client is gone."""

    async def run(self, database: str, body: Mapping[str, Any] | bytes, extra: bytes = b"") -> bytes:
        """One command; the raw reply document. Raises ``BackendUnavailable``."""
        ...


class ClientSession(Protocol):
    """What is needed of a client's session."""

    @property
    def peer(self) -> str:
        """The client's address."""

    @property
    def identity(self) -> Identity:
        """The users that it authenticated as."""

    @property
    def upstream(self) -> ClientUpstream:
        """The client's own connection, opened when it is first used."""


def knows_cursor(cursors: CursorNames, cursor_id: object) -> bool:
    """Whether a ``getMore`` on this cursor must be renamed on its way."""
    return isinstance(cursor_id, int) and cursors.backend_namespace(cursor_id) is not None


async def continue_cursor(
    session: ClientSession,
    cursors: CursorNames,
    command: ClientCommand,
    resolve: Resolve,
    fields: ClientFields,
) -> bytes:
    """The raw reply to a ``getMore``; error 13 when the cursor belongs to another collection (C23) or user.

    ``fields`` are those of the session.
    """
    asked = fields_of(command.body)
    cursor_id = cursor_of(asked.get(b"getMore", b""))
    database = command.namespace.database
    named = Namespace(database, string_of(asked.get(b"collection", b"")))
    backend = cursors.backend_namespace(cursor_id) if isinstance(cursor_id, int) else None
    if backend is not None and isinstance(cursor_id, int):
        if named != backend.logical:
            # Whose cursor it is comes first, and only the backend knows.
            return _named_logically(await session.upstream.run(database, _body(asked), fields.extra()), backend)
        return await _continue(session, cursors, cursor_id, backend, asked, fields)
    reply = await session.upstream.run(database, in_one_document(command.body, command.sequences))
    if error_code(reply) != UNAUTHORIZED or not isinstance(cursor_id, int) or fields.in_transaction:
        return reply
    collection = resolve(named)
    if collection is None:
        return reply
    # Another process of the proxy may have opened it on the buckets; only the backend knows.
    on_buckets = await _continue(session, cursors, cursor_id, collection.buckets, asked, fields)
    return reply if error_code(on_buckets) == UNAUTHORIZED else on_buckets


def cursor_of(value: bytes) -> int | None:
    """The number in an element value of type long, which names a cursor; ``None`` for any other."""
    return int(unpack_int64(value, 1)[0]) if value[:1] == b"\x12" else None


def string_of(value: bytes) -> str:
    """The text of an element value; ``""`` for what is no string, or none in UTF-8."""
    try:
        return value[5:-1].decode() if value[:1] == b"\x02" else ""
    except UnicodeDecodeError:
        return ""


def _body(asked: Mapping[bytes, bytes]) -> bytes:
    """The command without its session, to the byte."""
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
    return answered_more(
        await session.upstream.run(backend.database, body, fields.extra()), cursors, cursor_id, backend
    )


def answered_more(reply: bytes, cursors: CursorNames, cursor_id: int, backend: Namespace) -> bytes:
    """The backend's reply to a ``getMore`` as the client wants it; remembers what became of the cursor."""
    renamed, left, answered = rename_cursor(reply, backend.logical)
    if answered is None:
        if error_code(reply) == CURSOR_NOT_FOUND:
            cursors.ended(cursor_id)
    elif left:
        cursors.opened(cursor_id, backend)
    else:
        cursors.ended(cursor_id)
    return renamed


def is_ok(reply: bytes) -> bool:
    """Whether a raw command reply says ``ok: 1``, whatever its number type (C26)."""
    return RawBSONDocument(reply, TOLERANT_RAW).get("ok") == 1


def error_code(reply: bytes) -> int | None:
    """The code of an error reply; ``None`` for a good one."""
    code = None if is_ok(reply) else RawBSONDocument(reply, TOLERANT_RAW).get("code")
    return code if isinstance(code, int) else None


def _named_logically(reply: bytes, backend: Namespace) -> bytes:
    """The backend's refusal with the name that the client knows."""
    said = bson.decode(reply, codec_options=TOLERANT)
    if "errmsg" in said:
        said["errmsg"] = str(said["errmsg"]).replace(str(backend), str(backend.logical))
    return bson.encode(said, codec_options=CODEC)
