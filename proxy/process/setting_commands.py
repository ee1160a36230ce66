"""The commands that take settings: ``tsproxy serve``, ``check-config``, ``doctor`` and ``health``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import click

from proxy.process import standard_streams
from proxy.settings.config import ConfigurationError, LoadedSettings, load_settings, log_format_of
from proxy.settings.table import ROWS, SettingRow
from proxy.settings.text import render_example, render_settings

_HEALTH_SECONDS = 3.0


def _option(row: SettingRow, *, hidden: bool) -> click.Option:
    choices = ("true", "false") if row.is_boolean else row.choices
    metavar = "HOST:PORT" if row.is_address else "|".join(choices) or "VALUE"
    default = _shown(row.default)
    shown = f"  [default: {default}]" if default else ""
    shown += "  [reloadable]" if row.is_reloadable else ""
    # The name alone means true.
    alone: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if row.is_boolean else {}
    return click.Option([row.flag], metavar=metavar, help=row.text + shown, hidden=hidden, **alone)


def _shown(default: object) -> str:
    """The default for the help; empty for an empty one."""
    if default in (None, (), {}):
        return ""
    match default:
        case bool():
            return str(default).lower()
        case tuple():
            return ",".join(default)
        case _:
            return str(default)


def _with_settings(command: Callable[..., None], shown: Collection[str]) -> click.Command:
    """``command`` with a flag for every setting; it gets the loaded settings as ``loaded``.

    The help lists the flags of ``shown``. All others are accepted, too, so that the flags of ``serve`` can be repeated.
    """

    def call(config: Path | None, **given: Any) -> None:
        flags = {name: given.pop(name) for name in ROWS if name in given}
        chosen = {name: value for name, value in flags.items() if value is not None}
        if command is _serve:
            from proxy.observe import logs

            logs.configure("info", log_format_of(chosen, os.environ, config))
        loaded = load_settings(chosen, os.environ, config)
        if command is _serve:
            given["load"] = lambda: load_settings(chosen, os.environ, config)
        else:
            for line in loaded.ignored:
                click.echo(f"tsproxy: ignored: {line}", err=True)
        command(loaded, **given)

    made = click.command(command.__name__.strip("_").replace("_", "-"), help=command.__doc__)(call)
    made.params += [
        click.Option(["--config"], type=click.Path(path_type=Path), help="TOML configuration file."),
        *(_option(row, hidden=row.name not in shown) for row in ROWS.values()),
    ]
    return made


def _serve(loaded: LoadedSettings, *, load: Callable[[], LoadedSettings], print_config: bool) -> None:
    """Serve MongoDB clients until SIGTERM or Ctrl-C.

    If no backend is set, an embedded mongod is started and stopped with the proxy.
    """
    if print_config:
        click.echo(render_settings(loaded), nl=False)
        return
    # Imported here, for no other command needs it.
    from proxy.process.app import run

    run(loaded, load, standard_streams.say)


def _check_config(loaded: LoadedSettings, *, example: bool) -> None:
    """Print the effective settings with their sources, or report what is wrong with them.

    Certificate files are loaded, too. All flags of "tsproxy serve" are accepted.
    """
    from proxy.clients.tls import ListenerTls, TlsOptions

    tls = TlsOptions.of(loaded.settings)
    if tls is not None:
        ListenerTls(tls)
    click.echo(render_example() if example else render_settings(loaded), nl=False)


def _doctor(loaded: LoadedSettings, *, as_json: bool, strict: bool) -> None:
    """Examine the backend: what the proxy would miss there, and the command or setting that fixes it.

    Nothing on the backend is changed. All flags of "tsproxy serve" are accepted. Exit code 0: the proxy can serve
    (there may be warnings); 1: the backend cannot be reached; 2: settings are wrong; 3: the backend or the account must
    be fixed first.
    """
    from proxy.process.doctor.command import run

    exit_code = run(loaded.settings, lambda text: click.echo(text, nl=False), is_json=as_json, strict=strict)
    sys.exit(exit_code)


def _health(loaded: LoadedSettings) -> None:
    """Check whether the proxy that runs with these settings is ready; exit code 0 if it is, 1 otherwise."""
    import urllib.error
    import urllib.request

    address = loaded.settings.status_listen
    if address is None:
        raise ConfigurationError(["status_listen = '' is not valid: health checks require an address"])
    url = f"http://{address.from_here}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=_HEALTH_SECONDS) as answer:
            click.echo(answer.read().decode().strip())
    except urllib.error.HTTPError as refused:
        with refused:
            click.echo(refused.read().decode().strip(), err=True)
        sys.exit(1)
    except OSError as error:
        reason = getattr(error, "reason", error)
        said = (reason.strerror if isinstance(reason, OSError) else "") or reason
        click.echo(f"cannot reach {url}: {said}; is tsproxy running with this status_listen?", err=True)
        sys.exit(1)


_print_config = click.Option(["--print-config"], is_flag=True, help="Print the effective settings and exit.")
_as_json = click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of text.")
_strict = click.Option(["--strict"], is_flag=True, help="Exit with code 3 if there are warnings.")
_example = click.Option(["--example"], is_flag=True, help="Print config.example.toml instead.")


def _made(command: Callable[..., None], extra: Collection[click.Option], shown: Collection[str]) -> click.Command:
    made = _with_settings(command, shown)
    made.params[:0] = extra
    return made


_SHOWN_BY_DOCTOR: Final = ("backend", "backend_file", "connect_timeout_ms", "timeseries_access", "write_strategy")

serve_command: Final = _made(_serve, [_print_config], tuple(ROWS))
check_config_command: Final = _made(_check_config, [_example], ("ignore_unknown_settings",))
doctor_command: Final = _made(_doctor, [_as_json, _strict], _SHOWN_BY_DOCTOR)
health_command: Final = _made(_health, [], ("status_listen",))
