"""Asks servers who they are, one connection each, without a login.

Unlike the driver, this says of each server why it cannot be used.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bson.errors import InvalidBSON

from catalog.bson.codec import decode, encode
from catalog.errors import BackendUnavailable
from proxy.backend.driver_errors import plain_reason
from proxy.backend.service_connection import ServiceConnection
from proxy.process.doctor.found import Member
from proxy.upstream.connecting import connect
from proxy.upstream.dialing import parse_upstream_name, upstream_name

NAME: Final = "tsproxy-doctor"
"""The application name of these connections. It differs from the proxy's own, so no proxy takes the doctor for one."""

MOST_MEMBERS: Final = 50
"""As many as a replica set can have."""

_LISTS: Final = ("hosts", "passives", "arbiters")
"""The names of members in a reply to ``hello``."""

_NOT_MONGODB: Final = "accepts connections, but does not answer as MongoDB"


async def reached(
    seeds: Iterable[tuple[str, int]], tls: ssl.SSLContext | None, timeout_seconds: float, *, alone: bool
) -> tuple[Member, ...]:
    """The servers of a connection string and, unless ``alone``, the members of the replica set that they name."""
    first = [upstream_name(*seed) for seed in seeds][:MOST_MEMBERS]
    members = await _asked(first, tls, timeout_seconds)
    if not alone:
        further = further_members(members)[: MOST_MEMBERS - len(members)]
        members += await _asked(further, tls, timeout_seconds)
    return tuple(members)


def further_members(members: Iterable[Member]) -> list[str]:
    """The addresses of members that others name and that have not been asked."""
    members = tuple(members)
    named = (str(name) for member in members for key in _LISTS for name in (member.hello or {}).get(key, ()))
    known = {member.address for member in members}
    return [name for name in dict.fromkeys(named) if name not in known]


async def _asked(addresses: list[str], tls: ssl.SSLContext | None, timeout_seconds: float) -> list[Member]:
    return list(await asyncio.gather(*(member_at(address, tls, timeout_seconds) for address in addresses)))


async def member_at(address: str, tls: ssl.SSLContext | None, timeout_seconds: float) -> Member:
    """What the server at this address says; never raises."""
    connection: ServiceConnection | None = None
    try:
        host, port = parse_upstream_name(address)
        async with asyncio.timeout(timeout_seconds):
            transport, connection = await connect(lambda: ServiceConnection(address), host, port, tls)
            return await _greeted(address, transport, connection)
    except TimeoutError:
        reason = f"no answer in {timeout_seconds:g} s" if connection is None else _NOT_MONGODB
    except ssl.SSLError as error:
        reason = f"TLS: {error.reason or error}"
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = f"TLS: the certificate is not accepted: {error.verify_message}"
    except OSError as error:
        reason = _system_reason(error)
    except BackendUnavailable:
        reason = f"{_NOT_MONGODB} (it closed the connection; does it require TLS?)" if tls is None else _NOT_MONGODB
    except (InvalidBSON, ValueError):
        reason = _NOT_MONGODB
    finally:
        if connection is not None:
            connection.close()
    return Member(address, reason=reason)


def _system_reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "Connection refused"
    if isinstance(error, ConnectionResetError):
        return "it closes new connections; does it have TLS?"
    return plain_reason(str(error)) or type(error).__name__


async def _greeted(address: str, transport: asyncio.BaseTransport, connection: ServiceConnection) -> Member:
    client = {"application": {"name": NAME}, "driver": {"name": NAME, "version": "0"}, "os": {"type": "Linux"}}
    asked_at, asked_clock = time.monotonic(), time.time()
    hello = decode(await connection.request(encode({"hello": 1, "client": client, "$db": "admin"})))
    took_seconds = time.monotonic() - asked_at
    if not hello.get("ok"):
        return Member(address, reason=f"refuses hello: {hello.get('errmsg', 'no reason given')}")
    tls = transport.get_extra_info("ssl_object")
    return Member(
        address,
        hello=hello,
        round_trip_seconds=took_seconds,
        ahead_seconds=_ahead(hello, asked_clock + took_seconds / 2),
        tls_version=(tls.version() or "") if tls is not None else "",
        certificate_ends_seconds=_end(tls.getpeercert() or {}) if tls is not None else None,
    )


def _ahead(hello: Mapping[str, Any], here_seconds: float) -> float | None:
    local_time = hello.get("localTime")
    return None if local_time is None else int(local_time) / 1000 - here_seconds


def _end(certificate: Mapping[str, Any]) -> float | None:
    """The last second of a certificate; it is not shown for one that was not verified."""
    end = certificate.get("notAfter")
    return None if end is None else float(ssl.cert_time_to_seconds(end))
