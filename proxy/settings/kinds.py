"""Kinds of values that settings have: addresses, and numbers with their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import Meta

LONGEST_MS: Final = 86_400_000
"""A day. Longer times of waiting are mistakes, and the driver fails on those of years."""
MOST_CONNECTIONS: Final = 1_000_000
MOST: Final = 1_000_000_000
MOST_BYTES: Final = 2**63 - 1
"""The largest whole number of BSON."""
_LONGEST_SECONDS: Final = 31_536_000
"""A year of 365 days."""

Milliseconds = Annotated[int, Meta(ge=1, le=LONGEST_MS)]
Seconds = Annotated[float, Meta(gt=0, le=_LONGEST_SECONDS)]
SecondsOrNone = Annotated[float, Meta(ge=0, le=_LONGEST_SECONDS)]
WorkerCount = Annotated[int, Meta(ge=1, le=64)] | Literal["auto"]

_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- only compared with


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on. ``port`` 0 lets the kernel choose; an IPv6 ``host`` has no brackets."""

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
        """The address that a client on this machine uses: loopback instead of "all interfaces"."""
        return Address(_LOOPBACK_OF.get(self.host, self.host), self.port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
