"""What every workload gets, and what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from pymongo.errors import PyMongoError

from bench.generator import LoadFailed, LoadResult
from bench.results import Measured, Sample, SampleKey
from bench.targets import Site, Target

UNCOUNTED = frozenset(
    {
        "buildInfo",
        "collStats",
        "count",
        "create",
        "createIndexes",
        "dropDatabase",
        "endSessions",
        "fsync",
        "getParameter",
    }
    | {"hello", "isMaster", "listCollections", "listIndexes", "ping", "serverStatus"}
)
"""Commands of the bench itself and of monitoring; what carries measurements is not among them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how often. ``measurements``: size of the loaded set of Q; ``scale``: that of S (1 = published)."""

    seconds: float = 2.0
    warmup_seconds: float = 0.5
    repeat: int = 3
    measurements: int = 1_000_000
    scale: float = 0.02
    drained_bytes: int = 64 * 1024 * 1024
    cases: str = ""
    """Only cases whose name contains this."""
    ordered: bool = True
    smoke: bool = False
    binary: str | None = None
    """The mongod that workloads with servers of their own start; by default the embedded one."""
    cache_gb: float = 1.0
    replica_set: bool = False
    unix_socket: bool = False
    proxy_flags: Sequence[str] = ()
    """What these servers are started with."""


@dataclass(frozen=True)
class Context:
    """The servers, the settings, and a place to say what is being done."""

    site: Site
    settings: Settings
    say: Callable[[str], None] = field(default=lambda _: None)
    done: AbstractSet[SampleKey] = frozenset()
    """Rounds that a run which goes on need not repeat."""

    def rounds(self, cases: int, targets: int) -> int:
        """How many samples this number of cases gives."""
        return cases * targets * self.settings.repeat


class Workload(Protocol):
    """One of the workloads by name."""

    name: str

    def rounds(self, context: Context) -> int:
        """How many samples ``run`` gives."""
        ...

    def run(self, context: Context) -> Iterator[Sample]:
        """Measure, target after target within a repeat, so that a slow moment of the machine meets all of them."""
        ...


class NamedCase(Protocol):
    """A case."""

    @property
    def name(self) -> str:
        """What the tables call it."""
        ...


CaseT = TypeVar("CaseT", bound=NamedCase)


def interleaved(
    workload: str,
    context: Context,
    cases: Sequence[CaseT],
    targets: Sequence[Target],
    measure: Callable[[Context, CaseT, Target], Mapping[str, float] | Measured],
) -> Iterator[Sample]:
    """A B C A B C ... for each case; every other repeat goes the other way round."""
    for case in cases:
        for repeat in range(context.settings.repeat):
            for target in targets if repeat % 2 == 0 else reversed(targets):
                if SampleKey(workload, case.name, target.name, repeat) in context.done:
                    continue
                context.say(f"{workload} {case.name} · {target.name}")
                yield attempt(workload, case.name, target.name, repeat, partial(measure, context, case, target))


def attempt(
    workload: str, case: str, target: str, repeat: int, measure: Callable[[], Mapping[str, float] | Measured]
) -> Sample:
    """A round; one that fails is told of at the end, and the others go on."""
    try:
        found = measure()
        if isinstance(found, Measured):
            return Sample(workload, case, target, repeat, found.metrics, curves=found.curves)
        return Sample(workload, case, target, repeat, found)
    except (LoadFailed, PyMongoError) as error:
        return Sample(workload, case, target, repeat, {}, str(error)[:1000] or type(error).__name__)


class Window:
    """Which commands reached the mongod between the beginning and ``per_thousand``."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._before = site.command_counts()

    def per_thousand(self, measurements: int) -> dict[str, float]:
        """Commands and bucket statements for a thousand measurements (or operations)."""
        after = self._site.command_counts()
        grown = {name: count - self._before.get(name, 0) for name, count in after.items()}
        commands = sum(
            count for name, count in grown.items() if "." not in name and name not in UNCOUNTED and count > 0
        )
        statements = grown["statements.insert"] + grown["statements.update"]
        scale = 1000 / max(1, measurements)
        return {"commands_per_1000": commands * scale, "statements_per_1000": statements * scale}


def load_metrics(site: Site, target: Target, result: LoadResult) -> dict[str, float]:
    """The figures that every load gives; CPU in microseconds for each measurement (or operation)."""
    each = 1e6 / max(1, result.measurements)
    metrics = {
        "rate": result.rate,
        "p50_us": result.latency_us["p50"],
        "p99_us": result.latency_us["p99"],
        "mongod_cpu_us": result.cpu_seconds(site.mongod_pids) * each,
        "generator_load": result.generator_cpu_seconds / result.seconds,
    }
    if target.through_proxy and site.proxy_pids:
        metrics["proxy_cpu_us"] = result.cpu_seconds(site.proxy_pids) * each
        metrics["proxy_resident_bytes"] = result.resident_bytes(site.proxy_pids)
    return metrics
