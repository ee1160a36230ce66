"""Where the proxy's time goes under W1: a flame graph, and its top functions in µs for each measurement.

``python -m bench.profile``; needs py-spy, which may have to run as root to look into another process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click
import pymongo

from bench import generator
from bench.documents import CPU, IOT
from bench.generator import OUT, Load, LoadResult
from bench.messages import insert_template
from bench.processes import Mongod, Proxy
from bench.targets import PROXY, Target, fresh_collection

RATE_HZ = 250
WARMUP_SECONDS = 2.0


def _record(pid: int, seconds: float, raw: Path, *, native: bool) -> subprocess.Popen[bytes]:
    spy = str(Path(sys.executable).with_name("py-spy"))
    command = [spy, "record", "--pid", str(pid), "--duration", str(int(seconds)), "--rate", str(RATE_HZ)]
    command += ["--format", "raw", "--output", str(raw), "--subprocesses"]
    return subprocess.Popen([*command, *(["--native"] if native else [])], stdout=subprocess.DEVNULL)


def read_stacks(raw: Path) -> Counter[tuple[str, ...]]:
    """Samples by stack, outermost frame first."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in raw.read_text().splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(frames.split(";"))] += int(count)
    return stacks


def shares(stacks: Counter[tuple[str, ...]]) -> tuple[Counter[str], Counter[str]]:
    """Samples by function, within itself and with what it calls; lines of a function are put together."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for stack, count in stacks.items():
        names = [frame.rpartition(":")[0] + ")" if frame.endswith(")") and ":" in frame else frame for frame in stack]
        own[names[-1]] += count
        for name in set(names):
            total[name] += count
    return own, total


def _under_load(
    target: Target, pid: int, shape_name: str, connections: int, seconds: float, raw: Path, *, native: bool
) -> LoadResult:
    shape = CPU if shape_name == "cpu" else IOT
    with fresh_collection(target, shape) as collection:
        load = generator.Running(
            Load(
                target.port,
                insert_template(collection.database, collection.name, shape, 1),
                connections=connections,
                seconds=seconds + 1,
                warmup_seconds=WARMUP_SECONDS,
                series=connections,
                sharing="partitioned",
                account=[pid],
            )
        )
        time.sleep(WARMUP_SECONDS)  # past the opening of connections and buckets
        spy = _record(pid, seconds, raw, native=native)
        result = load.result()
        spy.wait()
    return result


def _report(stacks: Counter[tuple[str, ...]], result: LoadResult, pid: int) -> None:
    each_us = result.cpu_seconds([pid]) / result.measurements * 1e6
    own, total = shares(stacks)
    samples = sum(stacks.values())
    click.echo(f"{result.rate:,.0f} measurements a second; proxy CPU {each_us:.1f} µs for each")
    for title, counts in (("by itself", own), ("with what it calls", total)):
        click.echo(f"\nµs for each measurement, {title}")
        for name, count in counts.most_common(35):
            click.echo(f"{count / samples * each_us:8.2f}  {count / samples:6.1%}  {name}")


@click.command()
@click.option("--connections", default=128, show_default=True)
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--document", "shape", type=click.Choice(["iot", "cpu"]), default="iot", show_default=True)
@click.option("--native/--no-native", default=False, show_default=True, help="Show frames of compiled code too.")
@click.option("--proxy-flag", multiple=True, help="A flag for the proxy; may be repeated.")
@click.option("--out", type=click.Path(path_type=Path), default=OUT / "profile.svg", show_default=True)
def main(connections: int, seconds: float, shape: str, native: bool, proxy_flag: tuple[str, ...], out: Path) -> None:
    """Write a flame graph of the proxy under single-document inserts."""
    out.parent.mkdir(parents=True, exist_ok=True)
    raw = out.with_suffix(".txt")
    with tempfile.TemporaryDirectory(prefix="tsproxy-profile-") as directory:
        mongod = Mongod(Path(directory) / "mongod", None, 1.0)
        proxy = Proxy(Path(directory) / "tsproxy", f"mongodb://127.0.0.1:{mongod.port}", proxy_flag)
        try:
            mongod.start()
            proxy.start()
            target = Target(PROXY, proxy.port, time_series=True, through_proxy=True)
            result = _under_load(target, proxy.pids[0], shape, connections, seconds, raw, native=native)
        except pymongo.errors.PyMongoError as error:
            raise click.ClickException(str(error)) from error
        finally:
            proxy.stop()
            mongod.stop()
    stacks = read_stacks(raw)
    _report(stacks, result, proxy_pid(result))
    out.write_text(flame_graph(stacks))
    click.echo(f"\nwrote {out} and {raw}")


def proxy_pid(result: LoadResult) -> int:
    """The process that was accounted."""
    return int(next(iter(result.processes)))


def flame_graph(stacks: Counter[tuple[str, ...]]) -> str:
    """The stacks as SVG."""
    from bench.flame import Frame

    root = Frame("all")
    for stack, count in stacks.items():
        root.add(stack, count)
    return root.svg()


if __name__ == "__main__":
    main()
