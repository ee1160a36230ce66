"""Builds the queries of deletes: for buckets that may contain matches, for matching rows, for all rows.

They apply the user's predicate after unpacking, and only necessary conditions to the buckets before (Q10-Q13).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bson import ObjectId

from catalog.bson.codec import encode
from catalog.bson.faithful import Opaque
from catalog.namespaces import VirtualCollection
from catalog.queries import NO_DOCUMENT
from rewrite.indexes import bucket_hint
from rewrite.plan import PAUSE, Document, Pause
from rewrite.profile import Profile
from rewrite.stages.dependencies import can_be_included, predicate_columns
from rewrite.stages.draft import INHIBITS, Stage
from rewrite.stages.empty_names import reading_all
from rewrite.stages.predicate import Split, split
from rewrite.stages.scope import Scope
from rewrite.stages.time_bounds import EVER, millis

_SEE_WHOLE_ROWS = ("$$ROOT", "$$CURRENT", "$jsonSchema")

_PIECE_BYTES = 1024 * 1024

TAG = "tsproxy bucket"
"""The field of unpacked rows for their bucket's id and meta value; its blanks make a collision with a user's field
unlikely."""


WHOLE: Document = {"batchSize": 1_000_000}
"""As many rows in one batch as fit into a reply."""


@dataclass(frozen=True)  # without slots, so that what follows from it is found out once
class Selection:
    """The measurements that a statement selects.

    An ``Opaque`` query may hold anything, and be large.
    """

    target: VirtualCollection
    profile: Profile
    query: Mapping[str, Any]
    collation: Mapping[str, Any] | None = None
    hint: Any = None
    let: Mapping[str, Any] | None = None
    common: Mapping[str, Any] | None = None
    """``maxTimeMS`` and ``comment`` for every step."""

    @property
    def scope(self) -> Scope:
        """The scope for the push-down rules."""
        return Scope.of(self.target, self.profile, self.collation, let=self.let)

    @cached_property
    def split(self) -> Split:
        """The query, split into a necessary condition for buckets and a condition for rows."""
        if isinstance(self.query, Opaque):
            return Split(None, {}, EVER)
        if not self.scope.plain_names:
            # There is no condition for buckets: all of them must be read.
            return Split(None, dict(self.query) or None, EVER)
        return split(self.query, self.scope)

    @cached_property
    def found(self) -> Mapping[str, Any]:
        """The query, as a ``$match`` behind the unpacking needs it (H18)."""
        return reading_all(self.query)

    @cached_property
    def condition(self) -> Opaque | None:
        """``split.bucket``, encoded once for all statements that contain it."""
        return None if self.split.bucket is None else Opaque(encode(self.split.bucket))

    @cached_property
    def sees_whole_rows(self) -> bool:
        """Whether an additional field in each row could change the result of the query."""
        if isinstance(self.query, Opaque):
            return any(_names_whole_rows(bytes(self.query.raw)))
        return _mentions(self.query, _SEE_WHOLE_ROWS)

    def looked_through(self) -> Generator[Pause, Any, None]:
        """Compute the expensive properties of a large query, with pauses."""
        if isinstance(self.query, Opaque) and "sees_whole_rows" not in self.__dict__:
            found = False
            for found in _names_whole_rows(bytes(self.query.raw)):
                if found:
                    break
                yield PAUSE
            self.__dict__["sees_whole_rows"] = found

    def aggregate(self, pipeline: Sequence[Stage], *, hinted: bool = False) -> Document:
        """An ``aggregate`` on the buckets with the options of the statement."""
        body: Document = {"aggregate": self.target.buckets.collection, "pipeline": list(pipeline), "cursor": WHOLE}
        if self.collation:
            body["collation"] = self.collation
        if self.let:
            body["let"] = self.let
        if hinted and self.hint:
            body["hint"] = bucket_hint(self.hint, self.target.options)
        return {**body, **self.profile.uuid_of(self.target), **(self.common or {})}


def _names_whole_rows(query: bytes) -> Iterator[bool]:
    """As ``sees_whole_rows``, for each piece of a raw query."""
    longest = max(map(len, _SEE_WHOLE_ROWS))
    for start in range(0, len(query), _PIECE_BYTES):
        piece = query[start : start + _PIECE_BYTES + longest]
        yield any(name.encode() in piece for name in _SEE_WHOLE_ROWS)


def _mentions(value: Any, names: tuple[str, ...]) -> bool:
    match value:
        case Mapping():
            return any(key in names or _mentions(inner, names) for key, inner in value.items())
        case list():
            return any(_mentions(inner, names) for inner in value)
        case str():
            return value.startswith(names)
        case _:
            return False


def candidates(selection: Selection, after: ObjectId | None, count: int) -> Document:
    """The next ``count`` buckets that may contain matches, by id: ``_id``, ``rows``, ``least``, ``greatest``."""
    conditions: list[Mapping[str, Any]] = []
    if after is not None:
        conditions.append({"_id": {"$gt": after}})
    if selection.condition is not None:
        conditions.append(selection.condition)
    time = selection.target.options.time_field
    shown: Document = {"_id": 1}
    if selection.scope.plain_names:
        shown |= {"rows": row_count(time), "least": f"$control.min.{time}", "greatest": f"$control.max.{time}"}
    pipeline: list[Stage] = [
        {"$match": {"$and": conditions} if conditions else {}},
        {"$sort": {"_id": 1}},
        {"$limit": count},
        {"$project": shown},
    ]
    return selection.aggregate(pipeline, hinted=True)


def row_count(time_field: str) -> Document:
    """The number of rows of a bucket; missing for a compressed one without a count (W6)."""
    times = f"$data.{time_field}"
    return {"$cond": [{"$eq": [{"$type": times}, "object"]}, {"$size": {"$objectToArray": times}}, "$control.count"]}


def may_cover(selection: Selection) -> bool:
    """Whether the meta value and times of a bucket can say that all its measurements match."""
    if not selection.scope.plain_names:
        return False
    residual, time = selection.split.residual, selection.target.options.time_field
    return residual is None or (len(residual) == 1 and isinstance(residual.get(time), Mapping))


def covers(selection: Selection, bucket: Mapping[str, Any]) -> bool:
    """Whether all measurements of a candidate match, judged by its meta value and times alone."""
    if not may_cover(selection) or not isinstance(bucket.get("rows"), int):
        return False
    residual = selection.split.residual
    if residual is None:
        return True
    bounds = residual[selection.target.options.time_field]
    least, greatest = millis(bucket.get("least")), millis(bucket.get("greatest"))
    if least is None or greatest is None:
        return False
    return all(_bound_covers(operator, millis(value), least, greatest) for operator, value in bounds.items())


def _bound_covers(operator: str, bound: int | None, least: int, greatest: int) -> bool:
    if bound is None:
        return False
    match operator:
        case "$lt":
            return greatest < bound
        case "$lte":
            return greatest <= bound
        case "$gt":
            return least > bound
        case "$gte":
            return least >= bound
        case _:
            return False


def unchanged_cover(selection: Selection, bucket: Mapping[str, Any]) -> Document:
    """A query that matches the candidate if it is still covered and has the rows that were counted."""
    time = selection.target.options.time_field
    conditions: list[Mapping[str, Any]] = [
        {"_id": bucket["_id"]},
        {f"control.min.{time}": bucket["least"], f"control.max.{time}": bucket["greatest"]},
        {"$expr": {"$eq": [row_count(time), bucket["rows"]]}},
    ]
    if selection.condition is not None:
        conditions.append(selection.condition)
    return {"$and": conditions}


def tagged_matches(selection: Selection, buckets: Mapping[str, Any], then: Sequence[Stage] = ()) -> Document:
    """The matching rows of these buckets, each with ``TAG.id``; ``then`` follows, such as a sort and a limit."""
    return selection.aggregate([{"$match": buckets}, *_tagged(selection, None), *then])


def holding_matches(selection: Selection, most_rows: int) -> Document:
    """The buckets that hold matches: ``_id``, and ``rows``, the number of matches; of ``most_rows`` matches at most."""
    stages: list[Stage] = [
        {"$match": {} if selection.condition is None else selection.condition},
        *_tagged(selection, _columns_of(selection)),
        {"$limit": most_rows},
        {"$group": {"_id": f"${TAG}.id", "rows": {"$sum": 1}}},
    ]
    return selection.aggregate(stages, hinted=True)


def _tagged(selection: Selection, columns: Sequence[str] | None) -> list[Stage]:
    meta = selection.target.options.meta_field
    stages: list[Stage] = [
        {"$addFields": {"meta": {"$mergeObjects": [{"id": "$_id", "m": "$meta"}]}}},
        *_unpack(selection, TAG, columns),
    ]
    if meta is not None:
        stages.append({"$replaceWith": _with_field(meta, f"${TAG}.m")})
    return [*stages, {"$match": selection.found}]


def _columns_of(selection: Selection) -> list[str] | None:
    """The columns that the query reads; ``None``: perhaps all."""
    read = predicate_columns(selection.query) if selection.scope.plain_names else None
    if read is None or not can_be_included(read):
        return None
    options = selection.target.options
    return sorted((read - {options.meta_field}) | {options.time_field})


def _with_field(name: str, value: str) -> Document:
    return {"$setField": {"field": {"$literal": name}, "input": "$$ROOT", "value": value}}


def matches(selection: Selection, bucket: ObjectId, then: Sequence[Stage] = ()) -> Document:
    """The matching rows of one bucket exactly as readers of the collection get them."""
    unpacked = _unpack(selection, selection.target.options.meta_field)
    return selection.aggregate([{"$match": {"_id": bucket}}, *unpacked, {"$match": selection.found}, *then])


def matches_in_image(selection: Selection, bucket: Mapping[str, Any], then: Sequence[Stage]) -> Document:
    """As ``matches``, for a bucket document that may have changed since."""
    # These stages return one document, whatever is stored, and only require the privilege to read.
    image: list[Stage] = [{"$match": NO_DOCUMENT}, {"$facet": {"none": [{"$limit": 1}]}}]
    image.append({"$replaceWith": {"$literal": bucket}})
    unpacked = _unpack(selection, selection.target.options.meta_field)
    return selection.aggregate([*image, *unpacked, {"$match": selection.found}, *then])


def all_rows(selection: Selection, buckets: Sequence[ObjectId]) -> Document:
    """Every row of these buckets without the meta field, each with ``TAG.id``."""
    return selection.aggregate(
        [{"$match": {"_id": {"$in": list(buckets)}}}, {"$addFields": {"meta": _ID_ALONE}}, *_unpack(selection, TAG)]
    )


_ID_ALONE: Document = {"$mergeObjects": [{"id": "$_id"}]}


def _unpack(selection: Selection, meta_field: str | None, columns: Sequence[str] | None = None) -> list[Stage]:
    """Unpacks, and hides the following stages from the backend's optimiser, which loses rows (H2-H5).

    ``columns``: which alone are unpacked, besides the meta value; ``None`` for all.
    """
    options = selection.target.options
    unpack: Document = {"timeField": options.time_field, "bucketMaxSpanSeconds": options.max_span_seconds}
    if meta_field is not None:
        unpack["metaField"] = meta_field
    if columns is not None:
        unpack["include"] = list(columns) if meta_field is None else [*columns, meta_field]
    return [{"$_internalUnpackBucket": unpack}, INHIBITS]


def documents(selection: Selection, buckets: Sequence[ObjectId]) -> Document:
    """The stored documents of these buckets."""
    return selection.aggregate([{"$match": {"_id": {"$in": list(buckets)}}}])


def metas(selection: Selection, query: Mapping[str, Any], after: ObjectId | None, count: int) -> Document:
    """``_id`` and ``meta`` of the next ``count`` buckets that match a query on buckets, by id."""
    conditions = [query] if after is None else [query, {"_id": {"$gt": after}}]
    stages: list[Stage] = [{"$match": {"$and": conditions}}, {"$sort": {"_id": 1}}, {"$limit": count}]
    return selection.aggregate([*stages, {"$project": {"_id": 1, "meta": 1}}], hinted=after is None and bool(query))


def row_counts(selection: Selection, buckets: Sequence[ObjectId]) -> Document:
    """The number of rows of each of these buckets, compressed ones too: ``_id``, ``rows``."""
    rows = all_rows(selection, buckets)["pipeline"]
    return selection.aggregate([*rows, {"$group": {"_id": f"${TAG}.id", "rows": {"$sum": 1}}}])
