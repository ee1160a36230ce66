"""The commands that read measurements, by name."""

from __future__ import annotations

from collections.abc import Mapping

from rewrite.commands.aggregate import rewrite_aggregate
from rewrite.commands.count import rewrite_count
from rewrite.commands.distinct import rewrite_distinct
from rewrite.commands.explain import rewrite_explain
from rewrite.commands.find import rewrite_find
from rewrite.commands.map_reduce import rewrite_map_reduce
from rewrite.plan import Rewriter

READ_REWRITERS: Mapping[str, Rewriter] = {
    "aggregate": rewrite_aggregate,
    "count": rewrite_count,
    "distinct": rewrite_distinct,
    "explain": rewrite_explain,
    "find": rewrite_find,
    "mapReduce": rewrite_map_reduce,
    "mapreduce": rewrite_map_reduce,
}
