"""Every setting of the proxy: name, type, default, and one line on what it does.

This table is the only source of the command line's flags, the environment variables, the TOML keys,
``config.example.toml`` and the texts of errors. Units stand last in names; "0 = …" says what zero means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
CountOrNone = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
SecondsOrNone = Annotated[float, Meta(ge=0)]
Compressor = Literal["snappy", "zstd", "zlib"]


_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- only compared with


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. ``port`` 0 lets the kernel choose; an IPv6 ``host`` is without its brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """From ``HOST:PORT`` or ``[IPv6]:PORT``; ``ValueError`` for anything else."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not colon or not host or (":" in host and not bracketed) or not (port.isascii() and port.isdigit()):
            raise ValueError(f"{text!r} is not HOST:PORT")
        if int(port) > 65_535:
            raise ValueError(f"{text!r} is not HOST:PORT")
        return cls(host, int(port))

    @property
    def from_here(self) -> Address:
        """Where a client on this machine connects: loopback instead of "all interfaces"."""
        return Address(_LOOPBACK_OF.get(self.host, self.host), self.port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective settings, checked. ``None`` stands for an empty value: not set, or switched off."""

    listen: Address = Address("127.0.0.1", 27018)
    status_listen: Address | None = Address("127.0.0.1", 9216)
    shutdown_grace_seconds: SecondsOrNone = 10.0

    backend: str | None = None
    backend_file: Path | None = None
    server_selection_timeout_ms: Count = 30_000
    connect_timeout_ms: Count = 10_000

    embedded_data_directory: Path = Path("~/.local/share/tsproxy/mongod")
    embedded_mongod: Path | None = None
    embedded_cache_size_gb: Annotated[float, Meta(ge=0.25)] = 0.5

    max_connections: Count = 10_000
    max_connections_per_address: CountOrNone = 0
    max_unauthenticated_seconds: SecondsOrNone = 60.0
    idle_timeout_seconds: SecondsOrNone = 0.0
    pre_auth_max_message_bytes: Annotated[int, Meta(ge=16_384, le=48_000_000)] = 1_048_576
    compressors: tuple[Compressor, ...] = ("snappy", "zstd", "zlib")

    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None
    tls_ca_file: Path | None = None
    tls_client_certificates: Literal["off", "optional", "required"] = "off"
    tls_minimum_version: Literal["1.2", "1.3"] = "1.2"

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    namespace_refresh_seconds: Seconds = 5.0
    roles_refresh_seconds: Seconds = 30.0
    reopening: bool = True
    commit_linger_ms: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    commit_rounds_in_flight: Count = 2
    bucket_growth: Literal["auto", "in_place", "in_parts"] = "auto"
    compress_closed_buckets: bool = True
    compress_after_seconds: Seconds = 300.0
    max_pending_measurements: Count = 200_000
    max_pending_bytes: Annotated[int, Meta(ge=16_777_216)] = 268_435_456

    timeseries_bucket_max_count: Annotated[int, Meta(ge=1, le=1_000_000)] = 1_000
    timeseries_bucket_max_size: Annotated[int, Meta(ge=1, le=12_582_912)] = 128_000
    timeseries_bucket_min_count: Count = 10
    timeseries_idle_bucket_expiry_memory_usage_threshold: Annotated[int, Meta(ge=1)] = 104_857_600


_TEXTS: Mapping[str, Mapping[str, str]] = {
    "Listening": {
        "listen": "HOST:PORT for MongoDB clients.",
        "status_listen": "HOST:PORT for /metrics, /livez and /readyz; empty = off.",
        "shutdown_grace_seconds": "How long clients may finish what they have under way when the proxy stops.",
    },
    "Backend": {
        "backend": "Connection string of the MongoDB behind; empty = embedded mongod.",
        "backend_file": "File that holds the connection string, to keep the password out of the environment.",
        "server_selection_timeout_ms": "How long to look for a usable backend server.",
        "connect_timeout_ms": "How long one connection to the backend may take to open.",
    },
    "Embedded mongod (used when no backend is named)": {
        "embedded_data_directory": "Where the embedded mongod keeps its data.",
        "embedded_mongod": "The mongod to start; empty = the one on PATH, else the one of tsproxy[embedded].",
        "embedded_cache_size_gb": "Memory that the embedded mongod may use as cache.",
    },
    "Clients": {
        "max_connections": "Clients connected at the same time.",
        "max_connections_per_address": "Clients connected at the same time from one address; 0 = no such limit.",
        "max_unauthenticated_seconds": "How long a client may stay without logging in, where asked; 0 = no limit.",
        "idle_timeout_seconds": "After how long without a message a client is disconnected; 0 = never.",
        "pre_auth_max_message_bytes": "Largest message from a client that has not logged in, where that is asked.",
        "compressors": "Compressors offered to clients, best first; empty = none.",
    },
    "TLS towards clients": {
        "tls_certificate_file": "PEM file with the certificate chain; empty = no TLS.",
        "tls_key_file": "PEM file with the key; empty = it is in the certificate file.",
        "tls_ca_file": "PEM file with the authorities that sign client certificates.",
        "tls_client_certificates": "Whether clients show a certificate.",
        "tls_minimum_version": "Oldest TLS version that is accepted.",
    },
    "Logging": {
        "log_level": "Least severe level written.",
        "log_format": "For people or for machines.",
    },
    "Catalog and commits": {
        "namespace_refresh_seconds": "How soon a collection made, changed or dropped past this proxy is noticed.",
        "roles_refresh_seconds": "How soon a change of a user's roles takes effect.",
        "reopening": "Whether late measurements go to stored buckets that have room.",
        "commit_linger_ms": "How long a commit waits for company; 0 = it leaves at once.",
        "bucket_growth": "How rows are added under load: by updates, as small buckets joined later, or as is best.",
        "compress_closed_buckets": "Whether buckets that take no more rows are compressed, from 6.0 on as servers do.",
        "compress_after_seconds": "How long buckets that time has passed by may still be come back to by late rows.",
        "commit_rounds_in_flight": "Commits of one collection under way at the same time.",
        "max_pending_measurements": "Measurements waiting for their commit before clients are slowed down.",
        "max_pending_bytes": "Bytes waiting for their commit before clients are slowed down.",
    },
    "Buckets (mongod's server parameters in snake case)": {
        "timeseries_bucket_max_count": "Measurements in one bucket.",
        "timeseries_bucket_max_size": "Bytes in one bucket.",
        "timeseries_bucket_min_count": "Measurements that share a bucket even when it grows past its bytes.",
        "timeseries_idle_bucket_expiry_memory_usage_threshold": (
            "Bytes that open buckets may use before idle ones are closed."
        ),
    },
}
"""What each setting does, by heading; the order in which settings are shown."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One row of the table, for whoever lists settings."""

    name: str
    type: Any
    default: Any
    group: str
    text: str

    @property
    def is_address(self) -> bool:
        """Whether the value is HOST:PORT."""
        return self.type is Address or Address in get_args(self.type)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that a value may be, in order of sense; empty where it is not one word of a few."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def is_list(self) -> bool:
        """Whether the value is a list, written with commas in flags and variables."""
        return get_origin(self.type) is tuple

    @property
    def is_optional(self) -> bool:
        """Whether the value may be empty."""
        return type(None) in get_args(self.type)

    @property
    def flag(self) -> str:
        """The command line's name."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment's name."""
        return "TSPROXY_" + self.name.upper()


def _rows() -> dict[str, SettingRow]:
    hints = get_type_hints(Settings, include_extras=True)
    defaults = {setting.name: setting.default for setting in fields(Settings)}
    return {
        name: SettingRow(name, hints.pop(name), defaults[name], group, text)
        for group, texts in _TEXTS.items()
        for name, text in texts.items()
    }


ROWS: Mapping[str, SettingRow] = _rows()
"""All settings by name, in the order in which they are shown."""
