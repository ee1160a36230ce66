"""The commands ``tsproxy import`` and ``tsproxy export``: their options, their messages and exit codes."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from bson import json_util
from pymongo.errors import OperationFailure, PyMongoError

from proxy.settings.redaction import redact_uri
from proxy.tools import exporting, importing, state
from proxy.tools.collection_source import CollectionSource
from proxy.tools.files import FORMATS, BsonFile, JsonFile, format_of
from proxy.tools.loading import Loader
from proxy.tools.rows import Broken, Source
from proxy.tools.targets import (
    ACCESS_DENIED,
    GRANULARITIES,
    TargetOptions,
    WrongTarget,
    connected,
    prepared,
    split_name,
)

AGAIN: Final = 1
"""The exit code if the same command can go on later."""
WRONG: Final = 2
"""The exit code for wrong options, files and collections."""
BAD_ROW: Final = 3
"""The exit code if a row is not valid."""

STATE_HELP: Final = "State file.  [default: tsproxy-import-SOURCE-into-DB.COLLECTION.json in this directory]"

_URI: Final = click.option("--uri", required=True, metavar="URI", help="MongoDB, or a tsproxy in front of it.")


@contextmanager
def _told(remedy: str) -> Iterator[None]:
    """Errors become a line and an exit code; ``remedy`` is for those that may be over later."""
    try:
        yield
    except (WrongTarget, state.WrongState, Broken, OSError, ValueError) as error:
        _end(str(error), WRONG)
    except importing.BadRowFound as error:
        _end(f"{error}; correct it, or give --rejects FILE to leave such rows out", BAD_ROW)
    except PyMongoError as error:
        # What follows describes the driver's view of the servers.
        text = redact_uri(str(error)).partition(", Timeout: ")[0][:1000]
        if isinstance(error, OperationFailure) and error.code in ACCESS_DENIED:
            _end(f"the server: {text}; check user, password, authSource, and what the user may do", WRONG)
        _end(f"the server: {text}; {remedy}", AGAIN)
    except KeyboardInterrupt:
        _end(f"stopped; {remedy}", AGAIN)


def _end(message: str, exit_code: int) -> NoReturn:
    click.echo(f"tsproxy: {message}", err=True)
    sys.exit(exit_code)


@contextmanager
def _bar(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """A function that moves a progress bar to a position; there is one on a terminal only."""
    if not sys.stderr.isatty() or not total:
        yield lambda position: None
        return
    with click.progressbar(length=total, label=label, file=sys.stderr, show_pos=False) as bar:
        yield lambda position: bar.update(max(0, position - bar.pos))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=False)
@_URI
@click.option("--into", required=True, metavar="DB.COLLECTION", help="The time-series collection.")
@click.option("--from", "from_name", metavar="DB.COLLECTION", help="A regular collection instead of a file.")
@click.option("--from-uri", metavar="URI", help="Where that collection is, if not at --uri.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format of the file; detected by default.")
@click.option("--time-field", metavar="NAME", help="To create the collection.")
@click.option("--meta-field", metavar="NAME", help="To create the collection.")
@click.option("--granularity", type=click.Choice(GRANULARITIES), help="To create the collection.")
@click.option("--expire-after-seconds", type=click.IntRange(0), help="To create the collection.")
@click.option("--rejects", type=click.Path(path_type=Path), help="Write bad rows to this file instead of stopping.")
@click.option("--state", "state_file", type=click.Path(path_type=Path), help=STATE_HELP)
@click.option("--connections", type=click.IntRange(1, 64), default=4, show_default=True)
@click.option("--batch-rows", type=click.IntRange(1, 100_000), default=5_000, show_default=True)
@click.option("--window-rows", type=click.IntRange(1, 1_000_000), default=importing.WINDOW_ROWS, show_default=True)
@click.option("--look-for-duplicates", is_flag=True, help="Leave out all rows that are stored already; slower.")
def import_command(file: Path | None, **given: Any) -> None:
    """Import a regular collection, or a file of mongoexport or mongodump, into a time-series collection.

    FILE has extended JSON or BSON, and may be compressed with gzip. To resume an import that was stopped or killed, run
    the same command again; rows that were stored already are not stored again. Exit code 1: stopped, to be repeated;
    2: wrong options, file or collection; 3: a row is not valid.
    """
    with _told("to go on where this one stopped, run the same command again"):
        _import(file, given)


def _import(file: Path | None, given: dict[str, Any]) -> None:
    if (file is None) == (given["from_name"] is None):
        raise WrongTarget("name either a file or a collection with --from")
    database, name = split_name(given["into"])
    with connected(given["uri"], given["connections"]) as client:
        collection = client[database][name]
        if file is not None:
            _run(_file_source(file, given["form"]), collection, given, exporting.metadata_path(file), file.name)
            return
        source_database, source_name = split_name(given["from_name"])
        with connected(given["from_uri"] or given["uri"]) as other:
            source = CollectionSource(other[source_database][source_name])
            _run(source, collection, given, None, given["from_name"])


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Rows have no cycles: looking for some among those of a window takes a third of the time of an import."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _file_source(file: Path, form: str | None) -> Source:
    source: Source = BsonFile(file) if (form or format_of(file)) == "bson" else JsonFile(file)
    if file.name.startswith(exporting.BUCKETS_FILE):
        raise WrongTarget(f"{file} holds buckets of a time-series collection: restore it with mongorestore")
    return source


def _run(source: Source, collection: Any, given: dict[str, Any], metadata: Path | None, label: str) -> None:
    state_file = given["state_file"] or Path(f"tsproxy-import-{label}-into-{collection.full_name}.json")
    found = state.load(state_file, source.fingerprint(), collection.full_name)
    if found is not None and found.is_finished:
        click.echo(f"{label} was imported completely; delete {state_file} to import it once more")
        return
    names = ("time_field", "meta_field", "granularity", "expire_after_seconds")
    importing.check_first(source, given["rejects"])
    fields = prepared(collection, TargetOptions(**{each: given[each] for each in names}), metadata)
    options = importing.ImportOptions(state_file, given["rejects"], given["window_rows"], given["look_for_duplicates"])
    begun = found or state.ImportState.new(source.fingerprint(), collection.full_name)
    if begun.entries or begun.under_way:
        click.echo(f"continuing after {source.unit} {begun.mark.get('where', 0)}", err=True)
    began_seconds = time.monotonic()
    loader = Loader(collection, fields, connections=given["connections"], batch_rows=given["batch_rows"])
    try:
        with _bar(source.total, label) as progress, _rare_collections():
            done = importing.run(source, loader, fields, begun, options, progress)
    finally:
        loader.close()
    seconds = max(time.monotonic() - began_seconds, 0.001)
    rows = done.stored - begun.stored
    click.echo(
        f"{done.stored} rows imported into {collection.full_name}, {done.duplicates} were stored already, "
        f"{done.rejected} rejected; {rows} rows in {seconds:.1f} s ({rows / seconds:.0f} per second)"
    )
    if done.rejected:
        click.echo(f"the rejected rows are in {given['rejects']}")


@click.command("export")
@click.argument("collection", metavar="DB.COLLECTION")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_URI
@click.option("--format", "form", type=click.Choice(FORMATS), help="By the name of the file by default, or else BSON.")
@click.option("--query", metavar="JSON", help="Export only measurements that match.")
@click.option("--relaxed", is_flag=True, help="JSON that is easier to read but does not tell all types.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def export_command(collection: str, file: Path, uri: str, form: str | None, query: str | None, **given: Any) -> None:
    """Export the measurements of a time-series collection to a file of mongodump (BSON) or mongoexport (JSON).

    A name that ends in .gz is compressed. The options of the collection are written to a file beside it.
    """
    with _told("run it again"):
        database, name = split_name(collection)
        if file.exists() and not given["overwrite"]:
            raise WrongTarget(f"{file} exists: choose another name, or give --overwrite")
        suffix = file.name.removesuffix(".gz").rpartition(".")[2].lower()
        chosen = form or ("json" if suffix in ("json", "jsonl", "ndjson") else "bson")
        wanted = json_util.loads(query) if query else None
        with connected(uri) as client:
            total = client[database][name].estimated_document_count() if sys.stderr.isatty() else 0
            with _bar(total, collection) as progress:
                rows = exporting.run(
                    client[database][name],
                    file,
                    form=chosen,
                    query=wanted,
                    relaxed=given["relaxed"],
                    progress=progress,
                )
        click.echo(f"{rows} measurements of {collection} exported to {file}")
        click.echo(exporting.LEAVING.format(name=collection))
