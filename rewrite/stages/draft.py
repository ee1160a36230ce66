"""The draft of a rewritten pipeline, which each rule takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId

from rewrite.stages.scope import Scope

Stage: TypeAlias = Mapping[str, Any]


INHIBIT: Final = "$_internalInhibitOptimization"
"""The stage that the backend's optimiser moves nothing past."""
INHIBITS: Final[Stage] = {INHIBIT: {}}


class Draft(NamedTuple):
    """A pipeline: ``head`` runs on buckets, these are unpacked if ``unpacks``, and ``tail`` runs on measurements.

    ``include``: the columns to unpack, ``None`` for all; ``computed``: fields that ``head`` adds to buckets and that
    the rows get. ``inhibits`` prevents the backend's optimiser from moving stages before the unpacking, where it would
    lose rows, groups or fields (H2–H5, H12, H13). ``guesses``: see ``rewrite.stages.pipeline.guess_pipeline``.
    """

    head: tuple[Stage, ...]
    tail: tuple[Stage, ...]
    unpacks: bool = True
    include: tuple[str, ...] | None = None
    computed: tuple[str, ...] = ()
    inhibits: bool = False
    extended_range: bool = False
    guesses: bool = False

    def with_head(self, *stages: Stage) -> Draft:
        """The draft with further stages at the end of ``head``."""
        return self._replace(head=(*self.head, *stages))

    def stages(self, scope: Scope) -> list[Stage]:
        """The whole pipeline."""
        if not self.unpacks:
            return [*self.head, *self.tail]
        inhibit: tuple[Stage, ...] = (INHIBITS,) if self.inhibits else ()
        return [*self.head, self._unpack(scope), *inhibit, *self.tail]

    def _unpack(self, scope: Scope) -> Stage:
        options: dict[str, Any] = {"timeField": scope.time_field}
        if scope.meta_field is not None:
            options["metaField"] = scope.meta_field
        options["bucketMaxSpanSeconds"] = scope.span_seconds
        if self.include is not None:
            options["include"] = list(self.include)
        if self.computed:
            options["computedMetaProjFields"] = list(self.computed)
        if self.extended_range and scope.profile.version >= (6, 0, 0):
            options["usesExtendedRange"] = True
        return {"$_internalUnpackBucket": options}


Rule: TypeAlias = Callable[[Draft, Scope], Draft]


def only(stage: Stage) -> tuple[str, Any]:
    """Name and argument of a stage; ``("", None)`` if it does not have exactly one name."""
    if len(stage) != 1:
        return "", None
    return next(iter(stage.items()))


def fails_unless(condition: Any) -> Stage:
    """Passes documents for which ``condition`` is true; fails on the server with ``GUESS_FAILED`` for any other."""
    # The name of a type cannot be converted to a number.
    return {"$match": {"$expr": {"$cond": [condition, True, {"$toInt": {"$type": "$_id"}}]}}}


_SCALARS = frozenset({bool, bytes, datetime, DatetimeMS, Decimal128, float, int, Int64, NoneType, ObjectId, str})


def is_pipeline(stages: Any) -> TypeGuard[list[Stage]]:
    """Whether this has the form of a pipeline."""
    return isinstance(stages, list) and all(isinstance(stage, dict) for stage in stages)


def walk(value: Any) -> Iterator[Any]:
    """Every value inside a document or array, itself first."""
    # A loop that tests exact types, for speed: it runs several times for every command.
    waiting = [value]
    while waiting:
        element = waiting.pop()
        yield element
        if type(element) in _SCALARS:
            continue
        if isinstance(element, dict):
            waiting.extend(reversed(element.values()))
        elif isinstance(element, list | tuple):
            waiting.extend(reversed(element))


def keys_inside(value: Any) -> set[str]:
    """Every field name inside a document or array."""
    keys: set[str] = set()
    waiting = [value]
    while waiting:
        element = waiting.pop()
        if isinstance(element, dict):
            keys.update(element)
            waiting += [inner for inner in element.values() if type(inner) not in _SCALARS]
        elif isinstance(element, list | tuple):
            waiting += element
    return keys
