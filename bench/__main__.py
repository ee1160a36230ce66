"""The command line of the bench."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pymongo
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bench.context import Context, Settings
from bench.curve_plots import write_curves
from bench.generator import OUT
from bench.goals import judge, print_goals
from bench.grid_verdict import print_grid
from bench.heat_map import write_heat_maps
from bench.kinds.verdict import print_sweep
from bench.machine import describe_machine
from bench.markdown import markdown
from bench.plots import write_plots
from bench.processes import Mongod, Proxy, descendants, listener_pid
from bench.results import Results
from bench.table import print_tables
from bench.targets import Site
from bench.workloads import WORKLOADS

LONG = frozenset("FG")
"""Workloads that run only if --workloads names them."""

console = Console(width=max(150, Console().width))

WRITE_SECONDS = 2.0
"""Interval at which results are written."""


def _port(uri: str) -> int:
    return urlsplit(uri).port or 27017


@dataclass(frozen=True)
class Servers:
    """Which servers to use, or how to start them."""

    backend: str | None
    proxy: str | None
    without_proxy: bool
    proxy_flags: Sequence[str]
    binary: str | None
    cache_gb: float
    replica_set: bool
    unix_socket: bool
    """Whether the proxy reaches the mongod through its Unix socket; the load generator never does."""


@contextmanager
def _site(servers: Servers) -> Iterator[Site]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tsproxy-bench-")))
        backend = servers.backend
        if backend is None:
            mongod = Mongod(
                directory / "mongod",
                servers.binary,
                servers.cache_gb,
                replica_set=servers.replica_set,
                unix_socket=servers.unix_socket,
            )
            stack.callback(mongod.stop)
            mongod.start()
            backend = mongod.uri
            proxied = mongod.socket_uri if servers.unix_socket else f"mongodb://127.0.0.1:{mongod.port}"
        else:
            proxied = f"mongodb://127.0.0.1:{_port(backend)}"
        port = _port(backend)
        with pymongo.MongoClient(backend, directConnection=True) as client:  # type: ignore[var-annotated]
            site = Site(port, [int(client.admin.command("serverStatus")["pid"])])
        if servers.proxy is not None:
            site.proxy_port = _port(servers.proxy)
            pid = listener_pid(site.proxy_port)
            site.proxy_pids = descendants(pid) if pid is not None else []
        elif not servers.without_proxy:
            own = Proxy(directory / "tsproxy", proxied, servers.proxy_flags)
            stack.callback(own.stop)
            own.start()
            site.proxy_port, site.proxy_pids = own.port, own.pids
        yield site


def _describe(progress: Progress, task: TaskID, text: str) -> None:
    progress.update(task, description=text)


def _earlier(out: Path, settings: Settings) -> Results:
    """The rounds of the run that ``out`` is of, without those that failed."""
    results = Results.from_json(json.loads(out.read_text()))
    changed = [name for name, value in asdict(settings).items() if results.settings.get(name) != _as_json(value)]
    if changed:
        raise click.BadParameter(f"{out} is of a run with other settings: {', '.join(changed)}")
    results.samples = [sample for sample in results.samples if not sample.error]
    return results


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _measure(site: Site, names: Sequence[str], settings: Settings, results: Results, out: Path) -> None:
    columns = (TextColumn("{task.description:<46}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        context = Context(site, settings)
        written = 0.0
        done = frozenset(sample.key for sample in results.samples)
        tasks = {
            name: progress.add_task(
                name,
                total=WORKLOADS[name].rounds(context),
                completed=sum(key.workload == name for key in done),
            )
            for name in names
        }
        for name, task in tasks.items():
            say = partial(_describe, progress, task)
            context = Context(site, settings, say, done)
            for sample in WORKLOADS[name].run(context):
                results.samples.append(sample)
                if time.monotonic() - written > WRITE_SECONDS:
                    out.write_text(json.dumps(results.to_json(), indent=1))  # a run cut short counts too
                    written = time.monotonic()
                progress.advance(task)
                if not console.is_terminal:
                    print(sample.workload, sample.case, sample.target, sample.error or "", flush=True)
            progress.update(task, description=name)
    out.write_text(json.dumps(results.to_json(), indent=1))


@click.command()
@click.option("--workloads", default="", show_default="all but F and G", help="Comma separated.")
@click.option("--cases", default="", help="Only cases whose name contains this.")
@click.option("--seconds", default=2.0, show_default=True, help="Measured time of a round of writes.")
@click.option("--warmup", default=0.5, show_default=True, help="Seconds before that are not counted.")
@click.option("--repeat", default=3, show_default=True, help="Rounds of each case and target; medians are shown.")
@click.option("--backend", help="Connection string of a mongod on this machine; by default one is started.")
@click.option("--proxy", help="Connection string of a tsproxy in front of it; by default one is started.")
@click.option("--without-proxy", is_flag=True, help="Measure the database alone.")
@click.option("--proxy-flag", multiple=True, help="A flag for the proxy that is started; may be repeated.")
@click.option("--mongod", "binary", help="Path of the mongod to start; by default the embedded one.")
@click.option("--replica-set", is_flag=True, help="The mongod that is started is the one member of a replica set.")
@click.option("--unix-socket", is_flag=True, help="The proxy reaches the started mongod through its Unix socket.")
@click.option("--cache-gb", default=1.0, show_default=True, help="WiredTiger cache of the mongod that is started.")
@click.option(
    "--measurements", default=1_000_000, show_default=True, help="Size of the loaded set of Q, and at most of K."
)
@click.option("--scale", default=0.02, show_default=True, help="Size of S; 1 is the published one.")
@click.option("--unordered", is_flag=True, help="Send inserts with ordered: false.")
@click.option("--smoke", is_flag=True, help="Every kind of case once, briefly; the figures mean nothing.")
@click.option(
    "--resume", is_flag=True, help="Go on with the run that --out is of; W1 to W3, L and G skip what is done."
)
@click.option("--out", type=click.Path(path_type=Path), default=OUT / "latest.json", show_default=True)
@click.option("--plots", type=click.Path(path_type=Path), default=OUT, show_default=True, help="Directory for SVGs.")
@click.option("--show", type=click.Path(path_type=Path, exists=True), help="Measure nothing: show this result.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print ratios as Markdown instead of tables.")
def main(  # the options of a command line are many by nature
    workloads: str, cases: str, seconds: float, warmup: float, repeat: int, backend: str | None, proxy: str | None,
    without_proxy: bool, proxy_flag: tuple[str, ...], binary: str | None, cache_gb: float,
    replica_set: bool, unix_socket: bool, measurements: int, scale: float, unordered: bool, smoke: bool, resume: bool,
    out: Path, plots: Path, show: Path | None, as_markdown: bool,
) -> None:  # fmt: skip
    """Measure the proxy against the database alone, on one mongod, in turns."""
    if show is not None:
        results = Results.from_json(json.loads(show.read_text()))
    else:
        chosen = workloads or ",".join(name for name in WORKLOADS if smoke or name not in LONG)
        names = [name.strip() for name in chosen.split(",")]
        if unknown := set(names) - set(WORKLOADS):
            raise click.BadParameter(f"{', '.join(sorted(unknown))}: there are {', '.join(WORKLOADS)}")
        settings = Settings(
            seconds, warmup, repeat, measurements, scale, cases=cases, ordered=not unordered, binary=binary
        )
        settings = replace(
            settings, cache_gb=cache_gb, replica_set=replica_set, unix_socket=unix_socket, proxy_flags=proxy_flag
        )
        if smoke:
            settings = replace(settings, seconds=0.2, warmup_seconds=0.1, repeat=1, smoke=True)
            settings = replace(settings, measurements=10_000, scale=0.0005, drained_bytes=4 * 1024 * 1024)
        results = (
            _earlier(out, settings)
            if resume and out.exists()
            else Results({**asdict(settings), "machine": describe_machine()})
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        servers = Servers(backend, proxy, without_proxy, proxy_flag, binary, cache_gb, replica_set, unix_socket)
        with _site(servers) as site:
            _measure(site, names, settings, results, out)
    if as_markdown:
        print(markdown(results.summaries()))
    else:
        print_tables(console, results.summaries())
        print_goals(console, judge(results.summaries()))
        print_sweep(console, results.summaries())
        print_grid(console, results.summaries())
    summaries = results.summaries()
    for path in (
        *write_plots(summaries, plots),
        *write_heat_maps(summaries, plots),
        *write_curves(results.samples, plots),
    ):
        console.print(f"wrote {path}")
    if show is None:
        console.print(f"wrote {out}")
    for failed in results.failed:
        console.print(f"FAILED {failed.workload} {failed.case} · {failed.target}: {failed.error}", markup=False)
    if results.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
