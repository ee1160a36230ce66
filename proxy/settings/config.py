"""Loads ``Settings`` from flags, environment and a TOML file, and validates them.

Flags override ``TSPROXY_*`` variables, which override the file, which overrides the defaults. All problems are
reported at once, each with the name of the setting, its value, its source and the reason.
"""

from __future__ import annotations

import difflib
import math
import tomllib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as types

from proxy.settings.collection_rules import SYNTAX, parse_rules
from proxy.settings.limit_entries import WrongEntry, entries_of, numbers_of
from proxy.settings.limits import faults
from proxy.settings.machine_memory import catalog_memory_bytes
from proxy.settings.redaction import MASK, is_like_an_address, redact_given, redact_uri
from proxy.settings.service_variables import is_injected
from proxy.settings.table import ROWS, Address, SettingRow, Settings
from proxy.settings.trace_target import headers_of, is_url, lacks_library
from proxy.settings.uri_faults import uri_fault

__all__ = [
    "Address",
    "ConfigurationError",
    "LoadedSettings",
    "Settings",
    "describe_expected",
    "load_settings",
    "redact_uri",
]

CONFIG_VARIABLE = "TSPROXY_CONFIG"
_TEST_VARIABLES = "TSPROXY_TEST_"
_FROM_FLAG, FROM_DEFAULT = "command line", "default"


class ConfigurationError(Exception):
    """Settings that are not valid; ``problems`` has one line for each."""

    def __init__(self, problems: typing.Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """``settings``, the source of each by name, and the unknown names that were ignored, a line for each.

    ``injected``: the names of variables that Kubernetes sets for Services, which are no settings.
    """

    settings: Settings
    origins: Mapping[str, str]
    ignored: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()


def load_settings(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    config_file: Path | None = None,
) -> LoadedSettings:
    """Merge the sources and validate the result.

    ``flags`` holds the flags that were given, by setting name. The file is ``config_file``, or else the one that
    ``TSPROXY_CONFIG`` names. Raises ``ConfigurationError`` with every problem found.
    """
    if config_file is None and environment.get(CONFIG_VARIABLE):
        config_file = Path(environment[CONFIG_VARIABLE])
    problems: list[str] = []
    unknown: list[str] = []
    given: dict[str, tuple[Any, str]] = {}
    for source in (
        _from_file(config_file, problems, unknown),
        _from_environment(environment, unknown),
        _from_flags(flags),
    ):
        given.update(source)
    values: dict[str, Any] = {}
    for name, (value, origin) in given.items():
        try:
            values[name] = converted(ROWS[name], value)
        except WrongEntry as error:
            problems.append(f"{error.name} ({origin}) {error.reason}")
        except (msgspec.MsgspecError, ValueError) as error:
            # Everything else is a value of a wrong type.
            is_broken = isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError)
            what = "not JSON; " if is_broken else ""
            why = f" ({error.__cause__})" if isinstance(error.__cause__, _NoPath) else ""
            problems.append(_problem(name, value, origin, f"{what}expected {describe_expected(ROWS[name])}{why}"))
    ignored: tuple[str, ...] = ()
    if values.get("ignore_unknown_settings"):
        ignored = tuple(unknown)
    else:
        problems = [*unknown, *problems]
    if problems:
        raise ConfigurationError(problems)
    origins = {name: given[name][1] if name in given else FROM_DEFAULT for name in ROWS}
    settings = _resolved(Settings(**values), origins)
    contradictions = list(_contradictions(settings, origins))
    if contradictions:
        raise ConfigurationError(contradictions)
    return LoadedSettings(settings, origins, ignored, tuple(sorted(_injected(environment))))


def log_format_of(
    flags: Mapping[str, str], environment: Mapping[str, str], config_file: Path | None
) -> typing.Literal["console", "json"]:
    """The format for messages about settings that are not valid, as far as the sources can be read."""
    if config_file is None and environment.get(CONFIG_VARIABLE):
        config_file = Path(environment[CONFIG_VARIABLE])
    given: dict[str, tuple[Any, str]] = {}
    for source in (_from_file(config_file, [], []), _from_environment(environment, []), _from_flags(flags)):
        given.update(source)
    return "json" if given.get("log_format", ("", ""))[0] == "json" else "console"


def _problem(name: str, value: object, origin: str, reason: str) -> str:
    return f"{name} = {_shown(name, value)!r} ({origin}) is not valid: {reason}"


def _shown(name: str, value: object) -> object:
    """``value`` without secrets, also those that belong elsewhere."""
    match value:
        case str():
            return redact_given(value) if ROWS[name].may_be_secret else redact_uri(value)
        case list():
            return [_shown(name, item) for item in value]
        case dict():
            return {key: _shown(name, item) for key, item in value.items()}
        case _:
            return value


_VARIABLES: typing.Final = "TSPROXY_"
_NEAR: typing.Final = 0.75
"""Similarity of names, so that only misspellings are recognised."""


def _unknown(name: str, origin: str, prefix: str = "") -> str:
    near = difflib.get_close_matches(name.removeprefix(prefix).lower(), list(ROWS), n=1, cutoff=_NEAR)
    meant = (prefix + near[0].upper() if prefix else near[0]) if near else ""
    return f"{name} ({origin}) is not a known setting" + (f"; did you mean {meant}?" if meant else "")


def _from_file(path: Path | None, problems: list[str], unknown: list[str]) -> dict[str, tuple[Any, str]]:
    if path is None:
        return {}
    try:
        with _expanded(path).open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        problems.append(f"config = {redact_given(str(path))!r} cannot be read: {error.strerror}")
        return {}
    except _NoPath as error:
        problems.append(f"config = {redact_given(str(path))!r} is not a path: {error}")
        return {}
    except ValueError as error:  # also of a text that is not UTF-8, and of a number with too many digits
        problems.append(f"config = {str(path)!r} is not valid TOML: {error}{_hint(error)}")
        return {}
    unknown.extend(_unknown(name, str(path)) for name in content if name not in ROWS)
    return {name: (value, str(path)) for name, value in content.items() if name in ROWS}


_UNQUOTED: typing.Final = ("Invalid value", "Expected newline or end of document after a statement")


def _hint(error: Exception) -> str:
    """What to do about a value that TOML cannot read; it does not say that texts need quotes."""
    return "; texts need quotes" if str(error).startswith(_UNQUOTED) else ""


def _from_environment(environment: Mapping[str, str], unknown: list[str]) -> dict[str, tuple[Any, str]]:
    known = {row.variable: row.name for row in ROWS.values()}
    foreign = {CONFIG_VARIABLE, *_injected(environment)}
    for variable in environment:
        ours = variable.startswith(_VARIABLES) and not variable.startswith(_TEST_VARIABLES)
        if ours and variable not in known and variable not in foreign:
            unknown.append(_unknown(variable, "environment", _VARIABLES))
    return {
        name: (environment[variable], f"environment variable {variable}")
        for variable, name in known.items()
        if variable in environment and not is_injected(variable, environment[variable])
    }


def _injected(environment: Mapping[str, str]) -> Iterator[str]:
    """The variables that Kubernetes sets for Services whose names begin with that of this program."""
    for variable, value in environment.items():
        if variable.startswith(_VARIABLES) and is_injected(variable, value):
            yield variable


def _from_flags(flags: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    return {name: (value, _FROM_FLAG) for name, value in flags.items()}


def converted(row: SettingRow, value: object) -> Any:
    """``value`` as the setting's type. Text is read leniently (flags, environment), other TOML values must fit.

    Raises ``ValueError``, of which ``msgspec.ValidationError`` is a kind.
    """
    if row.is_table:
        return entries_of(row, value)
    if not isinstance(value, str):
        return _finite(msgspec.convert(value, row.type, dec_hook=_path_from))
    text = value.strip()
    if text == "" and row.is_optional:
        return None
    if row.is_address:
        return Address.parse(text)
    if row.is_list:
        items = [item.strip() for item in text.split(",") if item.strip()]
        return msgspec.convert(items, row.type)
    return _finite(msgspec.convert(text, row.type, strict=False, dec_hook=_path_from))


def _finite(read: object) -> object:
    if isinstance(read, float) and not math.isfinite(read):
        raise ValueError(read)
    return read


def _path_from(wanted: type, value: object) -> object:
    if not isinstance(value, str) or not value:
        raise ValueError(value)
    return _expanded(wanted(value))


class _NoPath(ValueError):
    """Text that cannot be the path of a file."""


def _expanded(path: Path) -> Path:
    if "\0" in str(path):
        raise _NoPath("it has a NUL")
    try:
        return path.expanduser()
    except RuntimeError:
        raise _NoPath(f"the user of {path.parts[0]} has no home directory") from None


def describe_expected(row: SettingRow) -> str:
    """The values that this setting accepts, in words."""
    if row.name == "backend":
        return "a connection string such as mongodb://db.example:27017/?replicaSet=rs0"
    if row.name == "create_as_timeseries":
        return f"a list of rules {SYNTAX}"
    if row.is_address:
        return "HOST:PORT with a port from 0 to 65535" + (", or an empty value" if row.is_optional else "")
    if row.is_table:
        return "a table of limits by name, with " + numbers_of(row)
    if row.choices:
        return "one of " + ", ".join(row.choices)
    return _describe(types.type_info(row.type))


def _describe(kind: types.Type) -> str:
    match kind:
        case types.IntType():
            return "a whole number" + _bounds(kind)
        case types.FloatType():
            return "a number" + _bounds(kind)
        case types.BoolType():
            return "true or false"
        case types.LiteralType(values=values):
            return "one of " + ", ".join(str(value) for value in values)
        case types.VarTupleType(item_type=item):
            return f"a list of {_describe(item).removeprefix('one of ')}"
        case types.CustomType():
            return "a path"
        case types.UnionType(types=parts):
            return ", or ".join(_describe(part).removeprefix("one of ") for part in parts)
        case types.NoneType():
            return "an empty value"
        case _:
            return "text"


def _bounds(kind: types.IntType | types.FloatType) -> str:
    if kind.gt is not None:
        return f" above {kind.gt:g}" + (f", at most {kind.le}" if kind.le is not None else "")
    low, high = kind.ge, kind.le
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return f" of at least {low}" if low is not None else ""


def _resolved(settings: Settings, origins: dict[str, str]) -> Settings:
    """With ``backend`` read from ``backend_file``, the data directory's ``~`` replaced, and the memory in bytes."""
    settings = replace(
        settings,
        embedded_data_directory=_data_directory(settings, origins),
        timeseries_idle_bucket_expiry_memory_usage_threshold=(
            settings.timeseries_idle_bucket_expiry_memory_usage_threshold or catalog_memory_bytes()
        ),
    )
    path = settings.backend_file
    if path is None or settings.backend is not None:
        return settings
    try:
        uri = path.read_text().strip()
    except (OSError, ValueError) as error:
        reason = f"cannot read the file: {error.strerror if isinstance(error, OSError) else 'not UTF-8 text'}"
        if is_like_an_address(str(path)):
            reason = "expected the path of a file; a connection string belongs in backend"
        raise ConfigurationError([_problem("backend_file", str(path), origins["backend_file"], reason)]) from None
    if not uri:
        raise ConfigurationError([_problem("backend_file", str(path), origins["backend_file"], "the file is empty")])
    origins["backend"] = f"file {path}"
    return replace(settings, backend=uri)


def _data_directory(settings: Settings, origins: Mapping[str, str]) -> Path:
    name, path = "embedded_data_directory", settings.embedded_data_directory
    try:
        return _expanded(path)
    except _NoPath as error:
        if settings.backend is not None or settings.backend_file is not None:
            return path
        raise ConfigurationError([_problem(name, str(path), origins[name], str(error))]) from None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # for example a name that is too long
        return False


def _contradictions(settings: Settings, origins: Mapping[str, str]) -> Iterator[str]:
    """Problems that a single value does not show: missing files, settings that require or exclude each other."""

    def problem(name: str, reason: str) -> str:
        value = list(getattr(settings, name)) if ROWS[name].is_table else getattr(settings, name)
        return _problem(name, str(value) if isinstance(value, Path | Address) else value, origins[name], reason)

    if settings.backend_file is not None and origins["backend"] != f"file {settings.backend_file}":
        yield problem("backend_file", "cannot be combined with backend")
    if settings.backend is not None and (reason := uri_fault(settings.backend)):
        # What a file has in place of a connection string may be a password.
        is_file = origins["backend"] == f"file {settings.backend_file}"
        shown = MASK if is_file and not is_like_an_address(settings.backend) else settings.backend
        reason = f"expected {describe_expected(ROWS['backend'])} ({reason})"
        yield _problem("backend", shown, origins["backend"], reason)
    for name in ("tls_certificate_file", "tls_key_file", "tls_ca_file", "embedded_mongod"):
        path: Path | None = getattr(settings, name)
        if path is not None and not _is_file(path):
            yield problem(name, "expected an existing file")
    if settings.tls_certificate_file is None:
        for name in ("tls_key_file", "tls_ca_file"):
            if getattr(settings, name) is not None:
                yield problem(name, "requires tls_certificate_file")
    if settings.tls_client_certificates != "off" and settings.tls_ca_file is None:
        yield problem("tls_client_certificates", "requires tls_ca_file")
    if settings.status_listen == settings.listen and settings.listen.port:
        yield problem("status_listen", "must differ from listen")
    if settings.admin_listen is not None and settings.admin_listen.port:
        for name in ("listen", "status_listen"):
            if settings.admin_listen == getattr(settings, name):
                yield problem("admin_listen", f"must differ from {name}")
    if settings.max_connections_per_address > settings.max_connections:
        yield problem("max_connections_per_address", f"must not exceed max_connections ({settings.max_connections})")
    if settings.trace_endpoint is not None and not is_url(settings.trace_endpoint):
        yield problem("trace_endpoint", "expected a URL such as http://collector:4318/v1/traces")
    if settings.tracing and lacks_library():
        yield problem("tracing", "requires the packages of tsproxy[otel]: pip install 'tsproxy[otel]'")
    if settings.trace_headers_file is not None:
        try:
            headers_of(settings.trace_headers_file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if isinstance(error, FileNotFoundError) and "=" in str(settings.trace_headers_file):
                reason = "expected the path of a file, whose lines are NAME=VALUE"
            yield problem("trace_headers_file", reason)
    for table, reason in faults(settings.user_limits, settings.database_limits):
        yield problem(table, reason)
    if len(set(settings.compressors)) != len(settings.compressors):
        yield problem("compressors", "contains a name twice")
    try:
        parse_rules(settings.create_as_timeseries)
    except ValueError as error:
        yield problem("create_as_timeseries", str(error))
