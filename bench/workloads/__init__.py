"""The workloads by name."""

from __future__ import annotations

from bench.context import Workload
from bench.workloads.writes import Writes, batch_cases, single_cases

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Writes("W1", single_cases()),
        Writes("W2", batch_cases()),
    )
}
