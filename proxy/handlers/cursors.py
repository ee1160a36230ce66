"""``getMore`` on cursors that the backend keeps under the name of the bucket collection."""

from __future__ import annotations

import bson
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import CODEC
from catalog.errors import CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.client_fields import ClientFields, take_apart
from proxy.cursor_names import CursorNames, rename_cursor
from proxy.handlers.translate import ClientCommand, ClientSession

UNAUTHORIZED = 13
CURSOR_NOT_FOUND = 43


async def continue_cursor(
    session: ClientSession, cursors: CursorNames, command: ClientCommand, target: VirtualCollection | None
) -> bytes | None:
    """The raw reply to a ``getMore``; ``None`` when the client's own message is to be relayed.

    ``command.namespace`` is the collection that the client names, ``target`` its virtual collection if it is one.
    Raises ``CommandError`` 13 when the cursor belongs to another collection (C23).
    """
    fields = take_apart(command.body, command.sequences)
    cursor_id = fields.body.get("getMore")
    if not isinstance(cursor_id, int):
        return None
    backend = cursors.backend_namespace(cursor_id)
    if backend is not None:
        if command.namespace != backend.logical:
            raise _not_its_collection(command.namespace, backend.logical)
        return await _continue(session, cursors, cursor_id, backend, fields)
    if target is None:
        return None
    return await _continue_unknown(session, cursors, cursor_id, target, fields)


async def _continue(
    session: ClientSession, cursors: CursorNames, cursor_id: int, backend: Namespace, fields: ClientFields
) -> bytes:
    body = {**fields.body, "collection": backend.collection}
    reply = await session.upstream.run(backend.database, body, fields.extra())
    renamed, left, answered = rename_cursor(reply, backend.logical)
    if answered is None:
        if _code(reply) == CURSOR_NOT_FOUND:
            cursors.ended(cursor_id)
    elif left:
        cursors.opened(cursor_id, backend)
    else:
        cursors.ended(cursor_id)
    return renamed


async def _continue_unknown(
    session: ClientSession, cursors: CursorNames, cursor_id: int, target: VirtualCollection, fields: ClientFields
) -> bytes:
    """A cursor of a view, or one that another process of the proxy opened on the buckets: only the backend knows."""
    reply = await session.upstream.run(target.namespace.database, fields.body, fields.extra())
    if _code(reply) != UNAUTHORIZED or fields.in_transaction:
        return reply
    on_buckets = await _continue(session, cursors, cursor_id, target.buckets, fields)
    return reply if _code(on_buckets) == UNAUTHORIZED else on_buckets


def _code(reply: bytes) -> int | None:
    code = bson.decode(reply, codec_options=CODEC).get("code") if RawBSONDocument(reply).get("ok") != 1 else None
    return code if isinstance(code, int) else None


def _not_its_collection(named: Namespace, actual: Namespace) -> CommandError:
    return CommandError(
        UNAUTHORIZED,
        f"Requested getMore on namespace '{named}', but cursor belongs to a different namespace {actual}",
    )
