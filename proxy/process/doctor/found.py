"""What the doctor found out about a backend: facts without a judgement.

``None`` means that nobody asked, because an earlier step failed; ``Unknown`` that the question had no answer.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from catalog.identity import User
from catalog.namespaces import Namespace
from proxy.settings.table import Settings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why a question has no answer; ``code`` is the error code of the backend, 0 if it is not from there.

    ``may_pass``: whether a later attempt may succeed without a change.
    """

    reason: str
    code: int = 0
    may_pass: bool = False


Learned: TypeAlias = T | Unknown | None
"""The answer to a question."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the connection string says, without its secrets.

    ``set_name``: the option ``replicaSet``. ``user`` is authenticated in the database ``source``; ``""`` if there is
    none. ``has_tls`` and ``verifies``: whether connections use TLS, and check the server's certificate.
    """

    uri: str
    seeds: tuple[tuple[str, int], ...]
    set_name: str = ""
    is_direct: bool = False
    user: str = ""
    source: str = "admin"
    has_tls: bool = False
    verifies: bool = True


@dataclass(frozen=True, slots=True)
class Member:
    """One server: its reply to ``hello``, or the reason why there is none.

    ``ahead_seconds``: how far its clock is ahead of the one of this machine, with an error of at most half of
    ``round_trip_seconds``. ``certificate_ends_seconds`` is Unix time; ``None`` without TLS or if it is not shown.
    """

    address: str
    hello: Mapping[str, Any] | None = None
    reason: str = ""
    round_trip_seconds: float = 0.0
    ahead_seconds: float | None = None
    tls_version: str = ""
    certificate_ends_seconds: float | None = None

    @property
    def set_name(self) -> str:
        """The name of its replica set; ``""`` if it is in none."""
        return str((self.hello or {}).get("setName", ""))

    @property
    def is_mongos(self) -> bool:
        """Whether it is the router of a sharded cluster."""
        return (self.hello or {}).get("msg") == "isdbgrid"

    @property
    def accepts_writes(self) -> bool:
        """Whether it is a standalone, a primary or a mongos."""
        return bool((self.hello or {}).get("isWritablePrimary"))


@dataclass(frozen=True, slots=True)
class Account:
    """The proxy's account after its login.

    ``user`` is ``None`` without a login; ``roles`` are pairs of name and database. Without access control
    (``is_checked`` is false), everybody may do everything.
    """

    user: User | None
    is_checked: bool
    roles: tuple[tuple[str, str], ...] = ()
    privileges: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesIndexes:
    """Which indexes a time-series collection with a meta field has.

    ``finds_series``: one that begins with the meta field, by which stored buckets of a series are found (W50).
    ``finds_latest``: one on a meta path and then, descending, on time (Q23).
    """

    namespace: Namespace
    time_field: str
    meta_field: str
    finds_series: bool
    finds_latest: bool


@dataclass(frozen=True, slots=True)
class Collections:
    """The time-series collections; ``count`` includes those without a meta field.

    ``unknown``: how many would not show their indexes. ``is_complete``: false if there are more than were looked at.
    """

    count: int = 0
    indexes: tuple[SeriesIndexes, ...] = ()
    unknown: int = 0
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that was found out.

    ``has_timeseries``: whether the server has time-series collections, which its version alone does not tell.
    ``is_closed``: whether the server refuses the namespaces of bucket collections.
    ``in_place_reason``: why buckets would grow in place; ``""`` if they may grow in parts. ``proxies``: the number of
    connected tsproxy processes. ``now_seconds``: Unix time of the examination. ``file_limit``: the limit of open files
    that the proxy would have if it were started here.
    """

    settings: Settings
    target: Target
    members: tuple[Member, ...] = ()
    now_seconds: float = 0.0
    file_limit: int = resource.RLIM_INFINITY
    build: Learned[Mapping[str, Any]] = None
    account: Learned[Account] = None
    feature_compatibility: Learned[str] = None
    has_timeseries: Learned[bool] = None
    is_closed: Learned[bool] = None
    in_place_reason: Learned[str] = None
    proxies: Learned[int] = None
    collections: Learned[Collections] = None

    @property
    def server(self) -> Member | None:
        """The server that the proxy would use: the one of a direct connection, or the one that accepts writes."""
        answering = [member for member in self.members if member.hello is not None]
        if self.target.is_direct:
            return answering[0] if answering else None
        return next((member for member in answering if member.accepts_writes), None)
