"""Every setting of the proxy: name, type, default, and one line on what it does.

This table is the only source of command-line flags, environment variables, TOML keys, ``config.example.toml`` and
error messages. Names end in their unit; "0 = …" explains a special value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta

from proxy.settings.kinds import (
    LONGEST_MS,
    MOST,
    MOST_BYTES,
    MOST_CONNECTIONS,
    Address,
    Milliseconds,
    Seconds,
    SecondsOrNone,
    WorkerCount,
)
from proxy.settings.limits import DatabaseLimits, UserLimits

__all__ = ["ROWS", "Address", "SettingRow", "Settings"]

Compressor = Literal["snappy", "zstd", "zlib"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective settings, validated. ``None`` is an empty value: not set, or disabled."""

    listen: Address = Address("127.0.0.1", 27018)
    status_listen: Address | None = Address("127.0.0.1", 9216)
    status_page: Literal["off", "numbers", "auto", "names"] = "auto"
    admin_listen: Address | None = None
    admin_without_login: Literal["loopback", "anywhere"] = "loopback"
    peer_listen: Address | None = None
    shutdown_grace_seconds: SecondsOrNone = 10.0
    workers: WorkerCount = 1
    reuse_port: bool = False

    backend: str | None = None
    backend_file: Path | None = None
    server_selection_timeout_ms: Milliseconds = 30_000
    connect_timeout_ms: Milliseconds = 10_000
    fail_fast: bool = False
    timeseries_access: Literal["auto", "buckets", "native"] = "auto"

    embedded_data_directory: Path = Path("~/.local/share/tsproxy/mongod")
    embedded_mongod: Path | None = None
    embedded_cache_size_gb: Annotated[float, Meta(ge=0.25, le=10_000)] = 0.5

    max_connections: Annotated[int, Meta(ge=1, le=MOST_CONNECTIONS)] = 10_000
    max_connections_per_address: Annotated[int, Meta(ge=0, le=MOST_CONNECTIONS)] = 0
    max_unauthenticated_seconds: SecondsOrNone = 60.0
    idle_timeout_seconds: SecondsOrNone = 0.0
    pre_auth_max_message_bytes: Annotated[int, Meta(ge=16_384, le=48_000_000)] = 65_536
    max_receiving_bytes: Annotated[int, Meta(ge=192_000_000, le=MOST_BYTES)] = 536_870_912
    compressors: tuple[Compressor, ...] = ("snappy", "zstd", "zlib")

    user_limits: Mapping[str, UserLimits] = field(default_factory=dict)
    database_limits: Mapping[str, DatabaseLimits] = field(default_factory=dict)

    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None
    tls_ca_file: Path | None = None
    tls_client_certificates: Literal["off", "optional", "required"] = "off"
    tls_minimum_version: Literal["1.2", "1.3"] = "1.2"

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    slow_command_ms: Annotated[float, Meta(ge=0, le=LONGEST_MS)] | None = 100.0
    slow_command_plans: bool = False
    ignore_unknown_settings: bool = False

    tracing: bool = False
    trace_endpoint: str | None = None
    trace_headers_file: Path | None = None
    trace_ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0
    trace_sampling: Literal["parent", "ratio"] = "parent"

    create_as_timeseries: tuple[str, ...] = ()
    hide_bucket_collections: bool = False

    namespace_refresh_seconds: Seconds = 5.0
    roles_refresh_seconds: Seconds = 30.0
    reopening: bool = True
    commit_linger_ms: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    commit_rounds_in_flight: Annotated[int, Meta(ge=1, le=1_000)] = 2
    write_strategy: Literal["auto", "native", "in_place", "in_parts"] = "auto"
    compress_closed_buckets: bool = True
    compress_after_seconds: Seconds = 300.0
    max_pending_measurements: Annotated[int, Meta(ge=1, le=MOST)] = 200_000
    max_pending_bytes: Annotated[int, Meta(ge=16_777_216, le=MOST_BYTES)] = 268_435_456

    timeseries_bucket_max_count: Annotated[int, Meta(ge=1, le=1_000_000)] = 1_000
    timeseries_bucket_max_size: Annotated[int, Meta(ge=1, le=12_582_912)] = 128_000
    timeseries_bucket_min_count: Annotated[int, Meta(ge=1, le=MOST)] = 10
    timeseries_bucket_min_size: Annotated[int, Meta(ge=1, le=12_582_912)] = 5_120
    timeseries_idle_bucket_expiry_memory_usage_threshold: Annotated[int, Meta(ge=0, le=MOST_BYTES)] = 0


_TEXTS: Mapping[str, Mapping[str, str]] = {
    "Listening": {
        "listen": "Address for MongoDB clients.",
        "status_listen": "Address for /metrics, /livez, /readyz and the status page; empty = disabled.",
        "status_page": (
            "What the status page and the metrics show. numbers: no names. names: also names of collections and "
            "limited users, and slow commands. auto: names to this machine only, and only without access control."
        ),
        "admin_listen": "Address that accepts admin commands only, also beyond max_connections; empty = disabled.",
        "admin_without_login": (
            "From where admin commands are accepted if the backend has no access control: from this machine only, or "
            "from anywhere. With access control, the privileges of the user decide."
        ),
        "peer_listen": (
            "Address for connections from other proxies of the same backend; empty = the host of listen, with any free "
            "port."
        ),
        "shutdown_grace_seconds": "Time that running commands have to finish at shutdown.",
        "workers": (
            "Number of processes that serve clients on the same addresses; auto = one for each core. Limits of memory "
            "and connections are divided among them."
        ),
        "reuse_port": "Allow another proxy to listen on the same addresses, which can then take over from this one.",
    },
    "Backend": {
        "backend": "MongoDB connection string of the backend; empty = start an embedded mongod.",
        "backend_file": "File that contains the connection string, to keep the password out of the environment.",
        "server_selection_timeout_ms": "Maximum time to wait for a suitable backend server.",
        "connect_timeout_ms": "Maximum time to open a connection to the backend.",
        "fail_fast": "Exit if the backend cannot be used at startup, instead of waiting for it.",
        "timeseries_access": (
            "How time-series collections are read and written. buckets: as buckets, which the proxy makes itself. "
            "native: by public commands on the collection only; inserts of all clients are combined. auto: buckets "
            "where the server and the account are known to allow it, otherwise native."
        ),
    },
    "Embedded mongod (used when no backend is set)": {
        "embedded_data_directory": "Data directory of the embedded mongod.",
        "embedded_mongod": "Path of the mongod to start; empty = mongod on PATH, or else from tsproxy[embedded].",
        "embedded_cache_size_gb": "WiredTiger cache size of the embedded mongod.",
    },
    "Clients": {
        "max_connections": "Maximum number of client connections.",
        "max_connections_per_address": "Maximum number of client connections from one address; 0 = no limit.",
        "max_unauthenticated_seconds": (
            "Disconnect a client that has not authenticated after this time without a command, "
            "if authentication is enabled; 0 = never."
        ),
        "idle_timeout_seconds": "Disconnect a client after this time without a command; 0 = never.",
        "pre_auth_max_message_bytes": "Maximum message size before authentication, if authentication is enabled.",
        "max_receiving_bytes": (
            "Maximum total size of partly received messages above 64 KiB, for all clients; above it, clients wait. One "
            "client may use half of it."
        ),
        "compressors": "Network compressors offered to clients, in order of preference; empty = none.",
    },
    "Limits of users and databases (tables by name; * is for all others)": {
        "user_limits": (
            "Limits of each user, by USER@DATABASE: max_connections, max_commands at once, "
            "max_measurements_per_second, max_waiting commands or inserts above these, each for at most max_wait_ms; "
            "0 = no limit."
        ),
        "database_limits": "Limits of each database by its name; as user_limits, without max_connections.",
    },
    "TLS for client connections": {
        "tls_certificate_file": "PEM file with the certificate chain; empty = no TLS.",
        "tls_key_file": "PEM file with the private key; empty = the key is in tls_certificate_file.",
        "tls_ca_file": "PEM file with the certificate authorities that sign client certificates.",
        "tls_client_certificates": "Whether clients must present a certificate.",
        "tls_minimum_version": "Minimum TLS version.",
    },
    "Logging": {
        "log_level": "Minimum level of messages that are logged.",
        "log_format": "Log format: readable text, or one JSON object per line.",
        "slow_command_ms": "Log commands that take at least this time; 0 = all commands, empty = none.",
        "slow_command_plans": "Whether the log shows what slow commands on time-series collections are rewritten to.",
    },
    "Tracing (requires tsproxy[otel])": {
        "tracing": "Record a span for each command and each commit, and export them with OTLP over HTTP.",
        "trace_endpoint": (
            "URL of the collector, for example http://collector:4318/v1/traces; empty = OTEL_EXPORTER_OTLP_ENDPOINT, "
            "or else this machine."
        ),
        "trace_headers_file": (
            "File with the headers for the collector, NAME=VALUE in each line; empty = OTEL_EXPORTER_OTLP_HEADERS."
        ),
        "trace_ratio": "Fraction of commands to trace; a client's trace context takes precedence.",
        "trace_sampling": (
            "Sampling of commands with a trace context. parent: as the context says; ratio: by trace_ratio."
        ),
    },
    "Compatibility": {
        "ignore_unknown_settings": (
            "Warn of unknown names in the file and the environment instead of refusing them, for example after going "
            "back to an older version."
        ),
    },
    "Collections": {
        "create_as_timeseries": (
            "Rules that make new collections time-series collections, for clients that cannot pass the options: the "
            "first insert into a matching name, or a plain create, creates one. * stands for any characters; the first "
            "matching rule is used."
        ),
        "hide_bucket_collections": (
            "Leave the collections of buckets and system.views out of listCollections, for tools that cannot use them."
        ),
    },
    "Catalog and commits": {
        "namespace_refresh_seconds": "Interval at which collections changed outside of this proxy are detected.",
        "roles_refresh_seconds": "Time after which changes to a user's roles take effect.",
        "reopening": "Add late measurements to stored buckets that have room.",
        "commit_linger_ms": "Time a commit waits to batch with others; 0 = commit immediately.",
        "write_strategy": (
            "How measurements are written. in_place: buckets grow by updates. in_parts: under load they grow by small "
            "buckets that are joined later. native: the backend carries out the inserts of each client. auto: in parts "
            "where readers are not affected, otherwise in place; large inserts natively where that is faster."
        ),
        "compress_closed_buckets": "Compress closed buckets; requires a backend from 6.0.",
        "compress_after_seconds": (
            "Delay before an inactive bucket is compressed; late measurements may still be added until then."
        ),
        "commit_rounds_in_flight": "Maximum number of commits in progress for one collection.",
        "max_pending_measurements": "Maximum number of uncommitted measurements; above it, clients are slowed down.",
        "max_pending_bytes": "Maximum size of uncommitted measurements; above it, clients are slowed down.",
    },
    "Buckets (mongod server parameters in snake case)": {
        "timeseries_bucket_max_count": "Maximum number of measurements in a bucket.",
        "timeseries_bucket_max_size": "Maximum size of a bucket in bytes.",
        "timeseries_bucket_min_count": "Number of measurements a bucket may hold even if it exceeds its maximum size.",
        "timeseries_bucket_min_size": (
            "Lower bound of the maximum size of a bucket in bytes. With many open buckets, the maximum shrinks so that "
            "they fill at most half of the backend's cache, but not below this."
        ),
        "timeseries_idle_bucket_expiry_memory_usage_threshold": (
            "Memory for open buckets in bytes; above it, idle buckets are closed. 0 = 2.5 % of the memory of the "
            "machine or container."
        ),
    },
}
"""What each setting does, by heading; the order in which settings are shown."""

_RELOADABLE = frozenset(
    {
        "admin_without_login",
        "shutdown_grace_seconds",
        "max_connections",
        "max_connections_per_address",
        "max_unauthenticated_seconds",
        "idle_timeout_seconds",
        "pre_auth_max_message_bytes",
        "max_receiving_bytes",
        "compressors",
        "user_limits",
        "database_limits",
        "tls_certificate_file",
        "tls_key_file",
        "tls_ca_file",
        "log_level",
        "slow_command_ms",
        "slow_command_plans",
        "ignore_unknown_settings",
        "namespace_refresh_seconds",
        "roles_refresh_seconds",
        "commit_linger_ms",
        "commit_rounds_in_flight",
        "compress_after_seconds",
        "max_pending_measurements",
        "max_pending_bytes",
        "timeseries_idle_bucket_expiry_memory_usage_threshold",
    }
)
"""Settings that a running proxy can change (``proxy.process.reloading``); all others need a restart."""

_UNIT_SUFFIXES: Mapping[str, str] = {
    "_seconds": "seconds",
    "_ms": "milliseconds",
    "_bytes": "bytes",
    "_gb": "GB",
    "_connections": "connections",
    "_connections_per_address": "connections",
    "_measurements": "measurements",
    "_rounds_in_flight": "commits",
    "_ratio": "fraction from 0 to 1",
    "workers": "processes",
    # mongod's own names do not have the unit.
    "_count": "measurements",
    "_bucket_max_size": "bytes",
    "_bucket_min_size": "bytes",
    "_memory_usage_threshold": "bytes",
}


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One row of the table. ``is_reloadable``: whether a running proxy can change the setting."""

    name: str
    type: Any
    default: Any
    group: str
    text: str
    is_reloadable: bool

    @property
    def is_address(self) -> bool:
        """Whether the value is HOST:PORT."""
        return self.type is Address or Address in get_args(self.type)

    @property
    def may_be_secret(self) -> bool:
        """Whether the value may be a secret, or what stands in the file it names may be given by mistake."""
        return self.name in ("backend", "trace_endpoint") or Path in (self.type, *get_args(self.type))

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words, in a sensible order; empty if the value is not one of a few words."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def is_boolean(self) -> bool:
        """Whether the value is true or false."""
        return self.type is bool

    @property
    def is_list(self) -> bool:
        """Whether the value is a list, comma-separated in flags and variables."""
        return get_origin(self.type) is tuple

    @property
    def is_table(self) -> bool:
        """Whether the value is a table by name, a JSON object in flags and variables."""
        return get_origin(self.type) is Mapping

    @property
    def is_optional(self) -> bool:
        """Whether the value may be empty."""
        return type(None) in get_args(self.type)

    @property
    def unit(self) -> str:
        """The unit of a number; empty for everything else."""
        return next((unit for suffix, unit in _UNIT_SUFFIXES.items() if self.name.endswith(suffix)), "")

    @property
    def flag(self) -> str:
        """The name of the command-line flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return "TSPROXY_" + self.name.upper()


def _rows() -> dict[str, SettingRow]:
    hints = get_type_hints(Settings, include_extras=True)
    defaults = {
        setting.name: setting.default if setting.default_factory is MISSING else setting.default_factory()
        for setting in fields(Settings)
    }
    return {
        name: SettingRow(name, hints.pop(name), defaults[name], group, text, name in _RELOADABLE)
        for group, texts in _TEXTS.items()
        for name, text in texts.items()
    }


ROWS: Mapping[str, SettingRow] = _rows()
"""All settings by name, in the order in which they are shown."""
