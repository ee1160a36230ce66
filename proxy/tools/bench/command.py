"""The command ``tsproxy bench``: its options, its messages and exit codes."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import click

from proxy.tools.bench import report, running
from proxy.tools.bench.shapes import BUILT_IN, WrongShape, shape_of
from proxy.tools.bench.sides import SIDES, Side, Unreachable, WrongSide

STOPPED: Final = 1
"""The exit code if the bench was stopped, or a server could not be used."""
WRONG: Final = 2
"""The exit code for wrong options, connection strings, templates and privileges."""
ROWS_DIFFER: Final = 3
"""The exit code if acknowledged rows are missing or differ."""


SHAPES: Final = "|".join([*BUILT_IN, "FILE"])


class WrongOption(Exception):
    """An option cannot be used; the message says which and why."""


def _end(message: str, exit_code: int) -> None:
    click.echo(f"tsproxy: {message}", err=True)
    sys.exit(exit_code)


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM stops as Ctrl-C does, and both do so if a shell has started the bench in the background."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _bar(seconds: float) -> Iterator[running.Progress]:
    """A function that moves a progress bar; there is one on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda passed, label: None
        return
    with click.progressbar(length=round(seconds * 10), label=" " * 18, file=sys.stderr, show_pos=False) as bar:

        def progress(passed_seconds: float, label: str) -> None:
            bar.label = f"{label:<18}"
            bar.update(max(0, round(passed_seconds * 10) - bar.pos))

        yield progress


@click.command("bench")
@click.option("--proxy", required=True, metavar="URI", help="URI of a tsproxy.")
@click.option("--direct", required=True, metavar="URI", help="URI of MongoDB itself, usually the proxy's backend.")
@click.option("--allow-writes", is_flag=True, help="Required: the bench writes to both, and drops what it has made.")
@click.option("--database", default="bench_tsproxy", show_default=True, metavar="NAME", help="Must not exist.")
@click.option("--into-existing", is_flag=True, help="Allow a database that exists; only own collections are dropped.")
@click.option("--connections", type=click.IntRange(1, 2_000), default=8, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1, 3_600), default=10, show_default=True, help="Length of a round.")
@click.option("--rounds", type=click.IntRange(1, 1_000), default=5, show_default=True, help="Rounds for each side.")
@click.option("--batch-rows", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Rows in one command.")
@click.option("--series", type=click.IntRange(1, 1_000_000), default=100, show_default=True)
@click.option("--shape", default="iot", show_default=True, metavar=SHAPES, help="Shape of the documents.")
@click.option("--readers", type=click.IntRange(0, 1_000), default=0, help="Connections that read meanwhile.")
@click.option("--processes", type=click.IntRange(1, 256), help="Load processes.  [default: one for each core]")
@click.option("--no-warm-up", is_flag=True, help="Begin with empty buckets instead of half full ones.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures to FILE.")
def bench_command(**given: Any) -> None:
    """Compare inserts through a tsproxy with inserts into MongoDB itself, under the same load.

    Rounds alternate between both. Each has a time-series collection of its own in a new database, which is dropped at
    the end, also after Ctrl-C. Then it is checked that all acknowledged rows are stored, with their values. Exit code
    1: stopped, or a server cannot be used; 2: wrong options or privileges; 3: acknowledged rows are missing or differ.
    """
    try:
        with _stoppable():
            is_complete = _bench(given)
    except (WrongOption, WrongShape, WrongSide) as error:
        _end(str(error), WRONG)
    except Unreachable as error:
        _end(str(error), STOPPED)
    except KeyboardInterrupt:
        _end("stopped", STOPPED)
    else:
        sys.exit(0 if is_complete else ROWS_DIFFER)


def _bench(given: Mapping[str, Any]) -> bool:
    """Run the bench and say what was measured; whether all acknowledged rows are stored."""
    if not given["allow_writes"]:
        raise WrongOption("the bench writes to both servers: allow it with --allow-writes")
    json_file: Path | None = given["json_file"]
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise WrongOption(f"--json: the directory of {json_file} does not exist")
    options = _options(given)
    with ExitStack() as stack:
        sides = [Side(name, given[name], options.database) for name in SIDES]
        for side in sides:
            stack.callback(side.close)
        for side in sides:
            side.check(may_exist=options.into_existing)
        for side in sides:
            stack.callback(_remove, side)
            side.make(options.shape)
        with _bar(options.planned_seconds) as progress:
            measured = running.run(options, sides, progress)
    click.echo(report.table(options, measured), nl=False)
    if json_file is not None:
        said = report.document(options, measured, {side.name: side.uri for side in sides})
        try:
            json_file.write_text(json.dumps(said, indent=2) + "\n")
        except OSError as error:
            raise WrongOption(f"--json: cannot write {json_file}: {error.strerror}") from None
    return all(each.stored is not None and each.stored.is_complete for each in measured.values())


def _options(given: Mapping[str, Any]) -> running.BenchOptions:
    kept = ("database", "connections", "seconds", "rounds", "batch_rows", "series", "readers", "into_existing")
    database = given["database"]
    if not database or database in ("admin", "local", "config") or any(each in database for each in '/\\. "$\0'):
        raise WrongOption(f"--database: {database!r} is not the name of a database that can be used")
    return running.BenchOptions(
        shape=shape_of(given["shape"]),
        processes=given["processes"] or 0,
        fills=not given["no_warm_up"],
        **{name: given[name] for name in kept},
    )


def _remove(side: Side) -> None:
    """Drop what was made; a second Ctrl-C does not prevent it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        left = side.remove()
    finally:
        signal.signal(signal.SIGINT, before)
    if left:
        click.echo(f"tsproxy: {left}", err=True)
