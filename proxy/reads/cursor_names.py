"""Records cursors whose namespace at the backend differs from the one that their clients know.

A rewritten read leaves its cursor on the bucket collection, but its client sends ``getMore`` with the collection that
it named. Cursors are recorded for the whole process, because drivers continue them over any of their connections.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from catalog.bounded import remember
from catalog.bson.raw import OBJECT, STRING, iter_positions, pack_int32, string_value, unpack_int64
from catalog.namespaces import Namespace
from proxy.request.attempt import SERVER_CURSOR_TIMEOUT_SECONDS

MAX_REMEMBERED = 32_768
"""Maximum number of recorded cursors; above it, the oldest are forgotten."""

MAX_GONE: Final = 256
"""Maximum number of recorded server processes that have ended."""


class _OpenCursor:
    """``process``: the server process that has it, ``b""`` if unknown. Once killed, it counts as long unused."""

    __slots__ = ("backend", "process", "used_at_seconds")

    def __init__(self, backend: Namespace, process: bytes, used_at_seconds: float) -> None:
        self.backend = backend
        self.process = process
        self.used_at_seconds = used_at_seconds


class CursorNames:
    """The namespace at the backend of each open cursor, by cursor id."""

    def __init__(self, max_remembered: int = MAX_REMEMBERED, now_seconds: Callable[[], float] = time.monotonic) -> None:
        self._cursors: dict[int, _OpenCursor] = {}
        """In the order of their last use."""
        self._gone: OrderedDict[bytes, None] = OrderedDict()
        self._max_remembered = max_remembered
        self._now_seconds = now_seconds

    def __len__(self) -> int:
        return len(self._cursors)

    def backend_namespace(self, cursor_id: int) -> Namespace | None:
        """The backend's namespace of this cursor; ``None`` if it is the one that the client knows."""
        cursor = self._cursors.get(cursor_id)
        return None if cursor is None else cursor.backend

    def opened(self, cursor_id: int, backend: Namespace, process: bytes = b"") -> None:
        """Record the backend's namespace of a cursor; id 0 means no cursor.

        ``process``: the server process that has the cursor (``proxy.upstream.server_process``), ``b""`` if unknown.
        """
        if not cursor_id:
            return
        known = self._cursors.pop(cursor_id, None)
        if known is not None and not process:
            process = known.process
        self._cursors[cursor_id] = _OpenCursor(backend, process, self._now_seconds())
        if len(self._cursors) > self._max_remembered:
            self.ended(next(iter(self._cursors)))

    def ended(self, cursor_id: int) -> None:
        """The cursor is exhausted or killed."""
        self._cursors.pop(cursor_id, None)

    def process_gone(self, process: bytes) -> None:
        """This server process has ended, and its cursors with it.

        Their namespaces stay recorded: a client that continues one must get the backend's error.
        """
        remember(self._gone, process, None, MAX_GONE)

    def killed(self, cursor_id: int) -> None:
        """A client kills the cursor. The backend may refuse that, so its namespace stays recorded."""
        cursor = self._cursors.get(cursor_id)
        if cursor is not None:
            cursor.used_at_seconds = -math.inf

    def is_open_in(self, database: str) -> bool:
        """Whether a client may continue a cursor that reads collections of this database."""
        if not self._cursors:
            return False
        since_seconds = self._now_seconds() - SERVER_CURSOR_TIMEOUT_SECONDS
        return any(
            cursor.backend.database == database
            and cursor.used_at_seconds > since_seconds
            and cursor.process not in self._gone
            for cursor in self._cursors.values()
        )


def rename_cursor(reply: bytes, namespace: Namespace) -> tuple[bytes, int, Namespace | None]:
    """The reply with ``namespace`` as ``cursor.ns``; the cursor's id; the previous namespace.

    Batches are not parsed, and copied once. A reply without a cursor (an error) is returned unchanged, with id 0 and
    ``None``.
    """
    for kind_at, name, start, end in iter_positions(reply):
        if name == b"cursor" and reply[kind_at] == OBJECT:
            return _rename_inside(reply, start, end, namespace)
    return reply, 0, None


def _rename_inside(reply: bytes, start: int, end: int, namespace: Namespace) -> tuple[bytes, int, Namespace | None]:
    """As ``rename_cursor``; ``reply[start:end]`` is the cursor."""
    cursor_id = 0
    named: tuple[int, int] | None = None
    for kind_at, field, value, stop in iter_positions(reply, start, end):
        if field == b"ns" and reply[kind_at] == STRING:
            named = value, stop
        elif field == b"id":
            cursor_id = int(unpack_int64(reply, value)[0])
    if named is None:
        return reply, 0, None
    value, stop = named
    database, _, collection = reply[value + 4 : stop - 1].decode().partition(".")
    name = string_value(str(namespace).encode())[1:]
    grown = len(name) - (stop - value)
    view = memoryview(reply)
    renamed = b"".join(
        (
            pack_int32(len(reply) + grown),
            view[4:start],
            pack_int32(end - start + grown),
            view[start + 4 : value],
            name,
            view[stop:],
        )
    )
    return renamed, cursor_id, Namespace(database, collection)
