"""What the rooms know of tracing: spans, and who makes them (``proxy.observe.tracing``).

Times are nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

Attributes: TypeAlias = Mapping[str, str | int | float | bool]
"""Names as in OpenTelemetry's conventions for databases; never a value of a document."""


class Kind(Enum):
    """On whose side of a request a span is."""

    SERVER = "server"
    """The proxy serves a client."""
    CLIENT = "client"
    """The proxy waits for the backend."""
    INTERNAL = "internal"


class Span(Protocol):
    """A span that has started."""

    @property
    def is_recorded(self) -> bool:
        """Whether it was sampled; nothing is kept of one that was not."""
        ...

    def link(self, other: Span) -> None:
        """Refer to another span, also of another trace."""
        ...

    def child(
        self,
        name: str,
        kind: Kind,
        started_ns: int,
        ended_ns: int,
        attributes: Attributes,
        links: Sequence[Span] = (),
    ) -> None:
        """Record a part of it that has ended already."""
        ...

    def end(self, name: str, ended_ns: int, attributes: Attributes, error: str = "") -> None:
        """It ends, and has this name. ``error``: the kind of error, ``""`` for none."""
        ...


class Tracer(Protocol):
    """Starts spans."""

    def command(self, name: str, started_ns: int, carried: Mapping[str, str]) -> Span:
        """The span of a command. ``carried``: ``traceparent`` and ``tracestate`` from the client, as far as valid."""
        ...

    def commit(self, name: str, started_ns: int, inserts: Sequence[Span]) -> Span:
        """The recorded span of a group commit, with a trace of its own and links to these spans."""
        ...
