"""Shortcuts for repeated reads of time-series collections, whose step is sent without parsing the read.

Dashboards send the same reads repeatedly. Between two such messages, only session and cluster time change; these are
copied to the step, and the rest of the step is kept. If anything fails afterwards, the read is parsed and planned as
usual.
"""

from __future__ import annotations

from typing import Final

from catalog.bson.raw import unpack_int64
from catalog.errors import CommandError
from proxy.reads.cursor_names import CursorNames
from proxy.reads.cursor_stream import Renaming
from proxy.reads.inline_reply import InlineReply, Prepared, prepared_more
from proxy.reads.plan_cache import CachedPlan
from proxy.reads.plan_context import PlanContext
from proxy.request.command import Command
from proxy.request.exchange import Exchange
from proxy.request.recognition import Form, Recognised, Shortcut, cuts_of
from proxy.request.session_fields import TRANSACTION_FIELDS
from proxy.wire import op_msg
from proxy.wire.framing import top_level
from proxy.wire.request_ids import next_request_id

_WEIGHT_BYTES: Final = 1_200


Pieces = tuple[bytes, ...]
"""A step's document in pieces, between which the values of its session are inserted."""


def pieces_of(command: Command, whole: bytes) -> Pieces | None:
    """The pieces of ``whole``, the step that is sent for ``command``.

    ``None`` if the step of a repeated command does not follow from it: in a transaction, or if command and step do not
    have the same changing values.
    """
    if not TRANSACTION_FIELDS.isdisjoint(command.fields):
        return None
    try:
        cuts = cuts_of(whole, top_level(whole))
    except CommandError:
        return None
    if [cut[2] for cut in cuts] != [cut[2] for cut in cuts_of(command.body, command.fields)]:
        return None
    pieces, position = [], 0
    for start, end, _ in cuts:
        pieces.append(whole[position:start])
        position = end
    return (*pieces, whole[position:])


def _weight(pieces: Pieces) -> int:
    return _WEIGHT_BYTES + sum(map(len, pieces))


class PlainQuestion(Shortcut):
    """Sends the step of a cached plan."""

    __slots__ = ("_context", "_kept", "_pieces", "_prepared")

    def __init__(self, context: PlanContext, kept: CachedPlan, prepared: Prepared, pieces: Pieces) -> None:
        """``prepared``: how the reply to ``kept`` is processed."""
        # This keeps the plan in memory even after the plan cache has removed it.
        super().__init__(_weight(pieces) + kept.weight_bytes)
        self._context = context
        self._kept = kept
        self._prepared = prepared
        self._pieces = pieces

    def start(self, exchange: Exchange, known: Recognised, form: Form, end: int) -> bool:
        """See ``Shortcut``: the plan must still be valid."""
        raw = exchange.message.raw
        context, kept, collection = self._context, self._kept, known.needs.collection
        if (
            end != len(raw)
            or collection is None
            or context.as_written(collection) is not kept.target
            or context.profile is not kept.profile
        ):
            return False
        step = op_msg.build(next_request_id(), 0, form.filled(raw, self._pieces))
        return known.send(exchange, step, InlineReply(exchange, kept.target, self._prepared, context.cursors))


class PlainMore(Shortcut):
    """Sends a ``getMore`` of a cursor on buckets, which may be a different one each time."""

    __slots__ = ("_cursors", "_pieces", "_renaming")

    def __init__(self, cursors: CursorNames, renaming: Renaming, pieces: Pieces) -> None:
        """The cursor must belong to the collection of ``renaming``."""
        super().__init__(_weight(pieces))
        self._cursors = cursors
        self._renaming = renaming
        self._pieces = pieces

    def start(self, exchange: Exchange, known: Recognised, form: Form, end: int) -> bool:
        raw = exchange.message.raw
        cursors, renaming = self._cursors, self._renaming
        if end != len(raw) or not form.cursor_at:
            return False
        number = int(unpack_int64(raw, form.cursor_at)[0])
        if cursors.backend_namespace(number) != renaming.buckets:
            return False
        step = op_msg.build(next_request_id(), 0, form.filled(raw, self._pieces))
        return known.send(
            exchange, step, InlineReply(exchange, None, prepared_more(cursors, number, renaming), cursors)
        )
