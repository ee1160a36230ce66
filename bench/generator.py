"""Runs the load generator: the compiled one, or its slower Python form where there is no C compiler."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bench.documents import BASE_MS
from bench.messages import Template, hello_message

SOURCE = Path(__file__).with_name("loadgen.c")
OUT = Path(__file__).with_name("out")


class LoadFailed(RuntimeError):
    """The generator ended badly, or a reply was not as expected."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to send, through how many connections, for how long.

    ``sharing``: ``shared`` gives out series round robin whoever sends, ``partitioned`` gives each connection its own
    ones, ``random`` picks. The run ends after ``operations``, or without these after ``seconds``. With ``interval_ms``
    a connection starts no more than one operation in this time; with ``period_ms`` operations start in the first
    ``burst_ms`` of each period only. With ``curve_ms`` the result has a point for each such interval. Connections are
    spread over ``port`` and ``more_ports``.
    """

    port: int
    template: Template
    host: str = "127.0.0.1"
    connections: int = 1
    seconds: float = 1.0
    warmup_seconds: float = 0.0
    operations: int = 0
    get_more: tuple[Template, int] | None = None
    series: int = 1
    sharing: str = "shared"
    order: str = "in-order"
    base_ms: int = BASE_MS
    step_ms: int = 1000
    first_tick: int = 0
    interval_ms: int = 0
    burst_ms: int = 0
    period_ms: int = 0
    curve_ms: int = 0
    more_ports: Sequence[int] = ()
    run: int = 1
    expect_n: int = -1
    account: Sequence[int] = field(default=())


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came of it, for the measured window; ``*_total`` count from the first message to the last."""

    seconds: float
    operations: int
    measurements: int
    operations_total: int
    requests_total: int
    reply_documents: int
    reply_bytes: int
    generator_cpu_seconds: float
    latency_us: dict[str, float]
    processes: dict[str, dict[str, float]]
    curve: Sequence[tuple[float, int, float]]
    """For each interval: its end in seconds, its measurements, and their p99 in microseconds."""

    @property
    def rate(self) -> float:
        """Measurements (or operations, of commands that carry none) a second."""
        return self.measurements / self.seconds

    def cpu_seconds(self, pids: Sequence[int]) -> float:
        """Processor time of these processes within the window."""
        return sum(self.processes[str(pid)]["cpu_seconds"] for pid in pids)

    def resident_bytes(self, pids: Sequence[int]) -> float:
        """Memory of these processes at the end of the window."""
        return sum(self.processes[str(pid)]["resident_bytes"] for pid in pids)


@cache
def command_prefix() -> tuple[str, ...]:
    """How to start a generator; compiles it at first use."""
    compiler = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if compiler is None:
        return (sys.executable, "-m", "bench.loadgen_python")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    binary = OUT / f"loadgen-{digest}"
    if not binary.exists():
        OUT.mkdir(exist_ok=True)
        fresh = binary.with_suffix(".new")
        subprocess.run([compiler, "-O2", "-o", str(fresh), str(SOURCE)], check=True)
        fresh.rename(binary)
    return (str(binary),)


class Running:
    """A generator at work; ``result`` waits for its end."""

    def __init__(self, load: Load, prefix: Sequence[str] | None = None) -> None:
        self._load = load
        self._files = tempfile.TemporaryDirectory(prefix="bench-")
        command = [*(prefix or command_prefix()), *self._arguments(Path(self._files.name))]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=SOURCE.parent.parent
        )

    def _arguments(self, directory: Path) -> list[str]:
        load, template = self._load, self._load.template
        (directory / "hello").write_bytes(hello_message())
        (directory / "message").write_bytes(template.message)
        options: dict[str, Any] = {
            "host": load.host,
            "port": ",".join(str(port) for port in (load.port, *load.more_ports)),
            "connections": load.connections,
            "seconds": load.seconds if not load.operations else 600,
            "warmup-seconds": load.warmup_seconds,
            "operations": load.operations,
            "hello": directory / "hello",
            "message": directory / "message",
            "document-offset": template.document_offset,
            "document-length": template.document_length,
            "documents": template.documents,
            "session-offset": template.session_offset,
            "series": load.series,
            "sharing": load.sharing,
            "order": load.order,
            "base-ms": load.base_ms,
            "step-ms": load.step_ms,
            "first-tick": load.first_tick,
            "interval-ms": load.interval_ms,
            "burst-ms": load.burst_ms,
            "period-ms": load.period_ms,
            "curve-ms": load.curve_ms,
            "run": load.run,
            "expect-n": load.expect_n,
        }
        if load.get_more is not None:
            more, offset = load.get_more
            (directory / "more").write_bytes(more.message)
            options |= {"get-more": directory / "more", "cursor-offset": offset}
            options |= {"more-session-offset": more.session_offset}
        if load.account:
            options["account"] = ",".join(str(pid) for pid in load.account)
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        return arguments + [text for patch in template.patches for text in ("--patch", patch)]

    def result(self) -> LoadResult:
        """Wait for the end; ``LoadFailed`` when a reply was wrong."""
        out, err = self._process.communicate()
        self._files.cleanup()
        if self._process.returncode:
            raise LoadFailed(err.strip() or f"the generator ended with {self._process.returncode}")
        raw = json.loads(out)
        if raw.pop("errors"):
            raise LoadFailed(f"a reply was not as expected: {raw['first_error']}")
        del raw["first_error"]
        return LoadResult(**raw)

    def stop(self) -> None:
        """End it early; there is no result then."""
        self._process.kill()
        self._process.communicate()
        self._files.cleanup()


def run(load: Load) -> LoadResult:
    """Send the load and wait for its end."""
    return Running(load).result()
