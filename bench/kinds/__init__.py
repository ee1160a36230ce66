"""The kinds of reads of workload K, by name."""

from __future__ import annotations

from bench.kinds.commands import commands
from bench.kinds.constants import constants
from bench.kinds.finds import finds
from bench.kinds.groups import groups
from bench.kinds.joins import joins
from bench.kinds.kind import Kind, Times
from bench.kinds.stages import stages


def all_kinds(times: Times) -> list[Kind]:
    """Every kind, with unique names."""
    kinds = [*finds(times), *commands(times), *constants(times), *groups(times), *stages(times), *joins(times)]
    assert len({kind.name for kind in kinds}) == len(kinds)
    return kinds
