"""Guarded writes to buckets: a bucket is changed only if it is exactly what was read (U8, W125)."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from bson import ObjectId
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import encode
from catalog.bson.raw import fields_of
from catalog.errors import UUID_MISMATCH, CommandError
from catalog.queries import NO_DOCUMENT
from rewrite.bucket_reads import Selection
from rewrite.plan import Document, Effect, Pause, Step, Via

Result = TypeVar("Result")
Talk: TypeAlias = Generator[Step | Effect | Pause, Mapping[str, Any], Result]
"""A part of a dialogue, with its result."""

SMALL_BUCKET_BYTES = 4 * 1024 * 1024
"""Up to this size a guard compares the whole bucket; two of a larger one would not fit into a command."""

SIMPLE: Mapping[str, Any] = {"locale": "simple"}

UNCHECKED: Mapping[str, Any] = {"bypassDocumentValidation": True}
"""The server's own writes also bypass the validator (W2). If the time field has an empty name, no bucket is valid,
and 6.0.5 crashes while it builds the error (C3, H6)."""
ACKNOWLEDGEMENT_FIELDS = ("electionId", "opTime", "$clusterTime", "operationTime", "writeConcernError")


EMPTY_BUCKET = encode({"control": {}, "data": {}})
"""For an update that is not executed."""


class WholeCommandFailed(CommandError):
    """A write was refused as a whole: no further statement of the client's command is executed."""


class ExecutedMeanwhile(Exception):
    """The backend has recorded this retryable statement: another copy of the client's command was executed (X2)."""


EXECUTED_AS_ANOTHER_KIND = frozenset({40606, 40638})
"""Errors of a ``findAndModify`` and an ``update`` whose statement is recorded as a delete."""

NODE_OR_SESSION_FAILED = frozenset({13, 22, 91, 189, 225, 251, UUID_MISMATCH, 10107, 11600, 11602, 13435, 13436})
"""Errors that every other statement would get, too: of the identity, the node, the session, of a collection that was
made again, and of bytes that are not BSON (22), for which a server refuses the whole command."""


def is_unacknowledged(write_concern: Mapping[str, Any]) -> bool:
    """Whether it is ``w: 0``; a ``w: false`` is for the backend to refuse."""
    w = write_concern.get("w")
    return w == 0 and not isinstance(w, bool)


@dataclass(slots=True)
class Removal:
    """One running delete command: how it writes, and the backend's replies.

    With ``keeps_images`` the backend keeps, with each recorded statement, the bucket as it was before.
    """

    write_concern: Mapping[str, Any] | None = None
    keeps_images: bool = False
    acknowledged: Document = field(default_factory=dict)

    def write(
        self,
        selection: Selection,
        body: Document,
        statement: int | None = None,
        *,
        raw: bool = False,
        holds_data: bool = True,
    ) -> Talk[Mapping[str, Any]]:
        """One write to the buckets; its reply. ``holds_data``: see ``Step``. Raises ``CommandError``."""
        if self.write_concern and not is_unacknowledged(self.write_concern):
            body = {**body, "writeConcern": self.write_concern}
        body = {**body, **(selection.common or {})}
        step = Step(
            selection.target.buckets.database, body, Via.SERVICE, raw=raw, statement=statement, holds_data=holds_data
        )
        try:
            reply = checked((yield step))
        except CommandError as error:
            raise WholeCommandFailed(error.code, error.message, labels=error.labels) from None
        for name in ACKNOWLEDGEMENT_FIELDS:
            if name in reply:
                self.acknowledged[name] = reply[name]
        for refused in reply.get("writeErrors", ()):
            raise CommandError(refused["code"], refused.get("errmsg", ""))
        return reply

    def delete(self, selection: Selection, guards: Sequence[Document], statement: int | None = None) -> Talk[int]:
        """Delete the buckets that match, one for each guard; returns their number."""
        deletes = [_statement(guard, 1, selection) for guard in guards]
        body = {"delete": selection.target.buckets.collection, "deletes": deletes, "ordered": False}
        if selection.let:
            body["let"] = selection.let
        holds_data = any(guard != NO_DOCUMENT for guard in guards)
        reply = yield from self.write(selection, body, statement, holds_data=holds_data)
        return int(reply["n"])

    def change(
        self,
        selection: Selection,
        guard: Document,
        before: bytes,
        bucket: bytes | None,
        statement: int | None = None,
    ) -> Talk[bool]:
        """Replace the bucket that matches, or delete it for ``None``; returns whether it matched.

        ``before``: the bucket as it was read. Raises ``ExecutedMeanwhile`` if the backend says so.
        """
        if statement is None:
            return (yield from self._change(selection, guard, bucket, None))
        try:
            if not self.keeps_images:
                return (yield from self._change(selection, guard, bucket, statement))
            image = yield from self.exchange(selection, guard, bucket, statement)
        except CommandError as error:
            if error.code not in EXECUTED_AS_ANOTHER_KIND:
                raise
            raise ExecutedMeanwhile from None
        if image is not None and encode(image) != before:
            raise ExecutedMeanwhile
        return image is not None

    def _change(self, selection: Selection, guard: Document, bucket: bytes | None, statement: int | None) -> Talk[bool]:
        if bucket is None:
            plain = Selection(selection.target, selection.profile, {}, common=selection.common)
            return bool((yield from self.delete(plain, [guard], statement)))
        update = {"q": guard, "u": _contents(bucket), "multi": False, "collation": SIMPLE}
        body = {"update": selection.target.buckets.collection, "updates": [update], **UNCHECKED}
        reply = yield from self.write(selection, body, statement)
        return bool(reply["n"])

    def exchange(
        self, selection: Selection, guard: Document, bucket: bytes | None, statement: int
    ) -> Talk[Mapping[str, Any] | None]:
        """As ``change``; returns the bucket as it was before, also if the statement had already been executed."""
        body: Document = {"findAndModify": selection.target.buckets.collection, "query": guard, "collation": SIMPLE}
        body |= {"remove": True} if bucket is None else {"update": _contents(bucket), **UNCHECKED}
        reply = yield from self.write(selection, body, statement, raw=True)
        before: Mapping[str, Any] | None = reply["value"]
        return before


def _contents(bucket: bytes) -> Document:
    """An update that puts these rows into a bucket.

    The meta value stays what it is: for a guard, values such as 1 and 1.0 are equal, and in a whole document a server
    would replace an empty timestamp. It is no pipeline, because a server that computes the difference of two objects
    in which a name occurs twice aborts (H10).
    """
    fields = fields_of(bucket)
    return {"$set": {name: RawBSONDocument(fields[name.encode()][1:]) for name in ("control", "data")}}


def _statement(guard: Document, limit: int, selection: Selection) -> Document:
    return {"q": guard, "limit": limit, "collation": selection.collation or SIMPLE}


def checked(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """The reply; raises ``CommandError`` if it is an error."""
    if reply.get("ok") == 1:
        return reply
    labels = tuple(reply.get("errorLabels", ()))
    code = int(reply.get("code", 1))
    kind = WholeCommandFailed if code in NODE_OR_SESSION_FAILED else CommandError
    raise kind(code, str(reply.get("errmsg", "the backend failed")), labels=labels)


def unchanged(bucket_id: ObjectId, bucket: bytes, time_field: str) -> Document:
    """A query that matches the bucket if it is still what was read: all of it, or of a large one, what a write changes.

    Those are the meta value, the summaries and the times, which change if rows are added or removed; the rest of a row
    never changes alone. The length is compared, too: for the rest of the rows of a large bucket, and because for a
    server numbers of two types can be equal, such as those of a row that was removed and stored again. The meta value
    may become an equal one meanwhile: a change writes none, so it stays.
    """
    stored = fields_of(bucket)
    conditions: list[Document] = [{"$eq": [{"$bsonSize": "$$ROOT"}, len(bucket)]}]
    if len(bucket) <= SMALL_BUCKET_BYTES:
        # Not as $eq, which 5.0 cannot optimise for $$ROOT (16409).
        conditions.append({"$not": [{"$ne": ["$$ROOT", {"$literal": RawBSONDocument(bucket)}]}]})
        return {"_id": bucket_id, "$expr": {"$and": conditions}}
    control = RawBSONDocument(stored[b"control"][1:])
    times = fields_of(stored[b"data"], 1)[time_field.encode()]
    column: Document = {"$getField": {"field": {"$literal": time_field}, "input": "$data"}}
    conditions += [{"$eq": ["$control", {"$literal": control}]}, {"$eq": [column, {"$literal": _value(times)}]}]
    if b"meta" in stored:
        conditions.append({"$eq": ["$meta", {"$literal": _value(stored[b"meta"])}]})
    return {"_id": bucket_id, "$expr": {"$and": conditions}}


def _value(stored: bytes) -> Any:
    wrapped = b"\x00\x00\x00\x00" + stored[:1] + b"v\x00" + stored[1:] + b"\x00"
    return RawBSONDocument(len(wrapped).to_bytes(4, "little") + wrapped[4:])["v"]
