"""Decides where the backend's optimiser is inhibited.

It must be inhibited where it loses rows or makes wrong groups (H2-H5) or wrong fields (H12, H13). It is also inhibited
where the proxy's bounds are cheaper: the server's bounds contain guards against mixed types, which double their cost
per bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rewrite.stages.dependencies import expression_columns, is_inclusion, predicate_columns
from rewrite.stages.draft import Draft, Stage, keys_inside, only, walk
from rewrite.stages.expressions import expressions_inside, is_calculated_time, is_safe_for_the_server
from rewrite.stages.lastpoint import OF_SORTED
from rewrite.stages.meta_paths import is_measurement_path, rename_constant_or_meta, rename_path
from rewrite.stages.scope import Scope
from rewrite.stages.shaping import Shape, shapes, top_field
from rewrite.stages.time_bounds import Interval, millis

_PICKS = frozenset(
    {"$first", "$last", "$top", "$bottom", "$firstN", "$lastN", "$topN", "$bottomN", "$min", "$max", "$minN", "$maxN"}
)


def keep_optimiser_out(draft: Draft, scope: Scope) -> Draft:
    """Inhibit the optimiser where it is wrong or costs more; set ``extended_range`` for time bounds that would wrap."""
    inputs: list[Shape | None] = [*shapes(draft.tail)]
    inputs += [None] * (len(draft.tail) - len(inputs))
    inhibits = (
        scope.profile.version < (6, 0, 0)
        or not scope.plain_names
        or not scope.compares_like_buckets
        or any(is_hazard(stage, scope, shape) for stage, shape in zip(draft.tail, inputs, strict=True))
        or _groups_wrongly(draft, scope)
        or _computes_from_meta_wrongly(draft, scope)
        or _bounds_alone_do(draft, scope)
    )
    inhibits = inhibits and not _fails_when_inhibited(scope)
    extended = scope.extended_range or any(has_wrapping_date(stage, scope) for stage in draft.tail)
    return draft._replace(inhibits=inhibits, extended_range=extended)


def _fails_when_inhibited(scope: Scope) -> bool:
    """Whether the server would refuse an inhibited pipeline.

    Releases after 6.0.5 use the time field's name as a path unless only a ``$match`` follows, and some names are not
    valid paths (C3).
    """
    time_field = scope.time_field
    return scope.profile.version > (6, 0, 5) and (not time_field or time_field.startswith("$"))


_BEST_LEFT = frozenset({"$geoNear", "$sample", "$sort"})
"""Stages for which the server has its own plan over buckets (Q24)."""
_BOUND_BY_THE_SERVER = frozenset({"$geoIntersects", "$geoWithin"})
"""Operators for which only the server has bounds."""


def _bounds_alone_do(draft: Draft, scope: Scope) -> bool:
    """Whether the optimiser could only add bounds that the proxy adds already.

    Not for times that the server calculates: only the server can turn these into a range of bucket ids.
    """
    keys: set[str] = set()
    for stage in draft.tail:
        name, predicate = only(stage)
        if name != "$match":
            if name in _BEST_LEFT:
                return False
            break
        for expression in expressions_inside(predicate):
            if is_calculated_time(expression, scope):
                return False
            keys |= expression_columns(expression) or set()
        keys |= keys_inside(predicate)
    return _BOUND_BY_THE_SERVER.isdisjoint(keys) and any(is_measurement_path(key, scope) for key in keys)


def is_hazard(stage: Stage, scope: Scope, shape: Shape | None) -> bool:
    """Whether the backend rewrites this stage wrongly; ``shape``: that of its input, unless it is unknown."""
    name, predicate = only(stage)
    keys = keys_inside(predicate) if name == "$match" else set()
    if "$expr" not in keys:
        return False
    columns = None if shape is None else predicate_columns(predicate)
    if shape is None or columns is None or not shape.has(columns):
        return True
    return "$nor" in keys or not _are_safe(predicate, scope)


def _are_safe(predicate: Any, scope: Scope) -> bool:
    expressions = list(expressions_inside(predicate))
    return bool(expressions) and all(is_safe_for_the_server(expression, scope) for expression in expressions)


def _groups_wrongly(draft: Draft, scope: Scope) -> bool:
    """Whether the backend may rewrite a ``$group`` wrongly (H4)."""
    return any(
        name == "$group"
        and isinstance(group, dict)
        and _is_picked_by_meta(group, scope)
        and (scope.extended_range or not _needs_order_of_rows(group, draft.tail[:at], scope))
        for at, (name, group) in enumerate(map(only, draft.tail))
    )


def _needs_order_of_rows(group: Mapping[str, Any], before: Sequence[Stage], scope: Scope) -> bool:
    """Whether the backend has to sort rows before it groups them.

    It rewrites groups that follow the unpacking, a sort by the meta field alone, or a sort that follows the unpacking
    and whose latest row is all that is asked for. In the last case, rows without a meta value get one that is null.
    """
    name, order = only(before[-1]) if before else ("", None)
    if name != "$sort" or not isinstance(order, dict) or all(rename_path(path, scope) is not None for path in order):
        return False
    towards = next(reversed(order.values()))
    accumulators = [argument for field, argument in group.items() if field != "_id" and isinstance(argument, dict)]
    operators = {name for accumulator in accumulators for name in accumulator}
    asks_for_the_latest = all(OF_SORTED.get(name) == towards and not name.endswith("N") for name in operators)
    return not operators.isdisjoint(OF_SORTED) and (not asks_for_the_latest or _chooses_rows(before[:-1], scope))


def _chooses_rows(before: Sequence[Stage], scope: Scope) -> bool:
    """Whether the last of these is a ``$match`` on more than the meta field, which stays behind the unpacking."""
    name, predicate = only(before[-1]) if before else ("", None)
    columns = predicate_columns(predicate) if name == "$match" else None
    return columns is not None and not columns <= {scope.meta_field}


def _is_picked_by_meta(group: Mapping[str, Any], scope: Scope) -> bool:
    """Whether this groups by meta without accumulators or picks values: the backend's rewriting may be wrong (H4)."""
    accumulators = [argument for name, argument in group.items() if name != "_id"]
    picks = [argument for argument in accumulators if isinstance(argument, dict) and not _PICKS.isdisjoint(argument)]
    return rename_constant_or_meta(group.get("_id"), scope) is not None and (not accumulators or bool(picks))


REPLACING = frozenset(
    {"$bucket", "$bucketAuto", "$count", "$facet", "$group", "$replaceRoot", "$replaceWith", "$sortByCount"}
)
"""Stages behind which there are no fields of the rows any more."""


def _computes_from_meta_wrongly(draft: Draft, scope: Scope) -> bool:
    """Whether the backend may compute fields from the meta field on the buckets and get rows with wrong fields.

    It does so behind many other stages, so every stage counts whose input may still have the fields of the rows.
    """
    if scope.meta_field is None:
        return False
    computed: set[str] = set()
    for name, argument in map(only, draft.tail):
        if name in REPLACING:
            return False
        values = computed_by(name, argument)
        if any(top_field(path) == scope.meta_field for path in values):
            return True
        if name in ("$addFields", "$set") and scope.profile.version < KEEPS_PROJECTIONS:
            computed |= {top_field(path) for path, value in values.items() if _may_read_meta_alone(value, scope)}
        elif leaves_out(computed, name, argument):
            return True
    return False


KEEPS_PROJECTIONS = (6, 0, 27)
"""The earliest release known to apply a ``$project`` to fields that it computes on buckets (H13)."""


def leaves_out(computed: set[str], name: str, argument: Any) -> bool:
    """Whether a stage is a ``$project`` that leaves one of these fields out."""
    return name == "$project" and is_inclusion(argument) and not computed <= {top_field(path) for path in argument}


def computed_by(name: str, argument: Any) -> Mapping[str, Any]:
    """The fields that a stage sets, with what it sets them to."""
    values = argument.get("output") if name == "$fill" and isinstance(argument, dict) else argument
    return values if name in ("$addFields", "$fill", "$set") and isinstance(values, dict) else {}


def _may_read_meta_alone(value: Any, scope: Scope) -> bool:
    columns = expression_columns(value)
    return columns is None or columns == {scope.meta_field}


def has_wrapping_date(stage: Stage, scope: Scope) -> bool:
    """Whether bounds on bucket ids for a date in this ``$match`` would wrap (H2)."""
    name, predicate = only(stage)
    if name != "$match":
        return False
    times = [time_ms for value in walk(predicate) if (time_ms := millis(value)) is not None]
    return bool(times) and Interval(min(times), max(times)).outside_id_range(scope)
