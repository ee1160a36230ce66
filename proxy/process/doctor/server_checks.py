"""Judges the servers: whether they answer, what they are, their clocks and certificates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from catalog.errors import UNAUTHORIZED
from proxy.backend.probing import CONSEQUENCE, TIMESERIES_REMEDY, WITHOUT_TIMESERIES
from proxy.process.doctor.finding import (
    Finding,
    advice,
    mongosh,
    note,
    ok,
    on_database,
    setting,
    unreachable,
    warning,
    wrong_backend,
    wrong_setting,
)
from proxy.process.doctor.found import Found, Member, Unknown
from proxy.settings.wording import counted

TESTED: Final = frozenset({(4, 4), (5, 0), (6, 0), (7, 0)})
"""Release series that are tested (docs/compatibility.md)."""

COMPATIBILITY: Final = "see docs/compatibility.md, Servers"
CLOCK_SECONDS: Final = 1.0
"""Difference between two clocks from which on it is a warning."""
CERTIFICATE_DAYS: Final = 30
"""Remaining time of a certificate below which it is a warning."""
_DAY_SECONDS: Final = 86_400
_LOOPBACK: Final = ("127.", "localhost:", "[::1]:", "/")
"""How addresses on this machine begin; ``/`` is a Unix socket."""


def reachable(found: Found) -> Finding:
    """Whether the servers answer."""
    answering = [member for member in found.members if member.hello is not None]
    silent = [f"{member.address}: {member.reason}" for member in found.members if member.hello is None]
    if not answering:
        return unreachable(
            "; ".join(silent) or "no server is named",
            advice("start the server, or check host, port, firewall and TLS options of the connection string"),
        )
    text = ", ".join(f"{each.address} ({each.round_trip_seconds * 1000:.1f} ms)" for each in answering)
    if not silent:
        return ok(f"answered: {text}")
    return warning(
        f"answered: {text}; no answer: {'; '.join(silent)}",
        advice("start these servers; this machine must reach each member by the name in the set's configuration"),
    )


def topology(found: Found) -> Finding | None:
    """What kind of deployment it is, and whether writes are accepted."""
    answering = [member for member in found.members if member.hello is not None]
    if not answering:
        return None
    first = found.server or answering[0]
    if first.is_mongos:
        return warning("a sharded cluster (mongos), which is untested", advice(COMPATIBILITY + ": With a mongos"))
    wanted, name = found.target.set_name, first.set_name
    if wanted and name != wanted:
        is_what = f"a member of the replica set {name}" if name else "not a member of a replica set"
        change = f"replicaSet={name}" if name else f"the connection string without replicaSet={wanted}"
        return wrong_setting(f"{first.address} is {is_what}, but replicaSet is {wanted}", setting(f"backend: {change}"))
    if (first.hello or {}).get("isreplicaset"):
        return wrong_backend(f"the replica set of {first.address} is not initiated", mongosh("rs.initiate()"))
    if not name:
        return ok("a standalone server")
    return _replica_set(found, name, answering)


def _replica_set(found: Found, name: str, answering: list[Member]) -> Finding:
    replica_set = setting(f"backend: replicaSet={name} instead of directConnection=true")
    primary = found.server
    if found.target.is_direct:
        if primary is not None and not primary.accepts_writes:
            text = f"{primary.address} is not the primary of the replica set {name}, and directConnection is set"
            return wrong_setting(text, replica_set)
        return warning(f"directConnection is set: the proxy will not follow the primary of {name}", replica_set)
    if primary is None:
        return unreachable(
            f"the replica set {name} has no primary; {len(answering)} of its members answer",
            mongosh("rs.status()"),
            advice("start the missing members; a majority elects a primary"),
        )
    return ok(f"replica set {name}, {counted(len(found.members), 'member')}, primary {primary.address}")


def tls(found: Found) -> Finding | None:
    """Whether connections to the backend are encrypted."""
    server = found.server
    if server is None:
        return None
    if not found.target.has_tls:
        if server.address.startswith(_LOOPBACK):
            return ok("off; the server is on this machine")
        return warning("off; data cross the network unencrypted", setting("backend: tls=true and tlsCAFile=FILE"))
    if not found.target.verifies:
        return warning(
            f"{server.tls_version}, but the server's certificate is not verified",
            setting("backend: tlsCAFile=FILE instead of tlsInsecure or tlsAllowInvalidCertificates"),
        )
    ends_seconds = server.certificate_ends_seconds
    if ends_seconds is None:
        return ok(server.tls_version)
    days = int((ends_seconds - found.now_seconds) // _DAY_SECONDS)
    text = f"{server.tls_version}, certificate valid until {datetime.fromtimestamp(ends_seconds, UTC):%Y-%m-%d}"
    if days < CERTIFICATE_DAYS:
        return warning(f"{text} ({counted(days, 'day')})", advice("renew the certificate of the server"))
    return ok(text)


def clocks(found: Found) -> Finding | None:
    """Whether the clocks agree: clients get times from both.

    ``hello`` has the time of this machine, ``$$NOW`` that of the backend.
    """
    known = [(each, each.ahead_seconds) for each in found.members if each.ahead_seconds is not None]
    if not known:
        return None
    worst, ahead_seconds = max(known, key=lambda each: abs(each[1]))
    # A slow reply makes the measurement uncertain by half of its time.
    if abs(ahead_seconds) - worst.round_trip_seconds / 2 <= CLOCK_SECONDS:
        return ok(f"{abs(ahead_seconds):.3f} s apart")
    direction = "ahead of" if ahead_seconds > 0 else "behind"
    return warning(
        f"the clock of {worst.address} is {abs(ahead_seconds):.1f} s {direction} that of this machine",
        advice("synchronise both clocks (chrony, ntpd, systemd-timesyncd)"),
    )


def version(found: Found) -> Finding | None:
    """Whether this version of MongoDB is supported."""
    build = found.build
    if build is None:
        return None
    if isinstance(build, Unknown):
        return note(f"not known: {build.reason}")
    if "tsproxy" in build:
        return wrong_setting(
            "this address is a tsproxy itself, not its backend",
            setting("backend: the connection string of the MongoDB server behind it"),
        )
    number = str(build.get("version", "?"))
    series = tuple(int(part) for part in build.get("versionArray", ())[:2])
    if series not in TESTED:
        return warning(f"MongoDB {number} is untested", advice(COMPATIBILITY))
    return ok(f"MongoDB {number}")


def timeseries(found: Found) -> Finding | None:
    """Whether the server has time-series collections."""
    has_timeseries = found.has_timeseries
    if has_timeseries is None:
        return None
    if isinstance(has_timeseries, Unknown):
        return note(f"not known: {has_timeseries.reason}")
    if has_timeseries:
        return ok("the server has time-series collections")
    return warning(f"{WITHOUT_TIMESERIES}: {CONSEQUENCE}", advice(TIMESERIES_REMEDY))


def feature_compatibility(found: Found) -> Finding | None:
    """Whether the server uses all features of its version."""
    stored, build = found.feature_compatibility, found.build
    if stored is None:
        return None
    if isinstance(stored, Unknown):
        return note(f"not known: {_plain(stored, 'getParameter')}; the proxy does not need it")
    series = ".".join(map(str, build.get("versionArray", ())[:2])) if isinstance(build, Mapping) else stored
    if stored == series:
        return ok(stored)
    later = {"confirm": True} if series >= "7" else {}
    what = "time-series collections cannot be created" if stored < "5.0" else f"features of {series} are off"
    return warning(
        f"{stored} on a server {series}: {what}",
        mongosh(on_database("admin", "runCommand", {"setFeatureCompatibilityVersion": series, **later})),
    )


def _plain(unknown: Unknown, action: str) -> str:
    return f"the account lacks {action} on the cluster" if unknown.code == UNAUTHORIZED else unknown.reason
