"""The workloads by name."""

from __future__ import annotations

from bench.context import Workload
from bench.workloads.cost import Cost
from bench.workloads.fleets import Fleets
from bench.workloads.grid import Grid
from bench.workloads.mixed import ReadsDuringWrites
from bench.workloads.neighbours import Neighbours
from bench.workloads.queries import Queries
from bench.workloads.relay import Relay
from bench.workloads.storage import Storage
from bench.workloads.sustained import Sustained
from bench.workloads.sweep import Sweep
from bench.workloads.users import UserQueries
from bench.workloads.writes import Writes, batch_cases, single_cases

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Writes("W1", single_cases()),
        Writes("W2", batch_cases()),
        ReadsDuringWrites(),
        Neighbours(),
        Sustained(),
        Fleets(),
        Grid(),
        Queries(),
        UserQueries(),
        Storage(),
        Relay(),
        Cost(),
        Sweep(),
    )
}
