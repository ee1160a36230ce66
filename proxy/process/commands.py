"""The program's commands, each imported when it is called.

``tsproxy --help`` and ``--version`` import none of them, and ``tsproxy serve`` none of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import click


def _bench() -> click.Command:
    """Compare inserts through a tsproxy with inserts into MongoDB itself, under the same load."""
    from proxy.tools.bench.command import bench_command

    return bench_command


def _check_config() -> click.Command:
    """Print the effective settings with their sources, or report what is wrong with them."""
    from proxy.process.setting_commands import check_config_command

    return check_config_command


def _doctor() -> click.Command:
    """Examine the backend: what the proxy would miss there, and the command or setting that fixes it."""
    from proxy.process.setting_commands import doctor_command

    return doctor_command


def _export() -> click.Command:
    """Export the measurements of a time-series collection to a file of mongodump (BSON) or mongoexport (JSON)."""
    from proxy.tools.command import export_command

    return export_command


def _health() -> click.Command:
    """Check whether the proxy that runs with these settings is ready; exit code 0 if it is, 1 otherwise."""
    from proxy.process.setting_commands import health_command

    return health_command


def _import() -> click.Command:
    """Import a regular collection, or a file of mongoexport or mongodump, into a time-series collection."""
    from proxy.tools.command import import_command

    return import_command


def _serve() -> click.Command:
    """Serve MongoDB clients until SIGTERM or Ctrl-C."""
    from proxy.process.setting_commands import serve_command

    return serve_command


class _Listed(click.Command):
    """A command as the help lists it."""

    def __init__(self, load: Callable[[], click.Command]) -> None:
        """``load`` imports the command, and has its name and the first sentence of its help."""
        super().__init__(load.__name__.strip("_").replace("_", "-"), help=load.__doc__)
        self.load = load


class _Commands(click.Group):
    """Shows no password in its errors: a connection string may stand where none is expected."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _redacted():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with _redacted():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, _Listed) else command, rest


@contextmanager
def _redacted() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        from proxy.settings.redaction import redact_quoted

        vars(error).update(message=redact_quoted(error.message))
        raise


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(metadata.version("tsproxy"), prog_name="tsproxy", message="%(prog)s %(version)s")
def cli() -> None:
    """A MongoDB wire-protocol proxy for time-series collections with shared, batched writes.

    Every setting can be given as a flag, as an environment variable TSPROXY_NAME, or in the TOML file; flags override
    variables, which override the file.
    """


for _load in (_bench, _check_config, _doctor, _export, _health, _import, _serve):
    cli.add_command(_Listed(_load))
