"""When the end of a command is reported: if it was slow, and always while commands are traced.

A command compares its duration with the threshold when it ends, and does nothing else for the slow log unless it was
slow. Then ``proxy.request.slow_commands`` describes it. Tracing needs no test of its own in a command: it reports every
command by a threshold of zero (``proxy.request.command_spans``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from catalog.ports import Acknowledgement

if TYPE_CHECKING:
    from proxy.request.exchange import Exchange


class Ended:
    """How a slow command ended. ``document`` is the reply of the proxy, ``message`` the one that was passed on.

    Neither is there if there was no reply, or if it was streamed; ``streamed_bytes`` is the size of the latter.
    ``code``: of the error that the client got, 0 for none.
    """

    __slots__ = (
        "acknowledgement",
        "closed",
        "code",
        "disconnected",
        "document",
        "message",
        "seconds",
        "streamed_bytes",
    )

    def __init__(
        self,
        seconds: float,
        document: bytes | None = None,
        message: bytes | None = None,
        acknowledgement: Acknowledgement | None = None,
        streamed_bytes: int = 0,
        *,
        closed: bool = False,
        disconnected: bool = False,
        code: int = 0,
    ) -> None:
        """``closed``: the proxy closes the connection instead of replying; ``disconnected``: the client has left."""
        self.seconds = seconds
        self.document = document
        self.message = message
        self.acknowledgement = acknowledgement
        self.streamed_bytes = streamed_bytes
        self.closed = closed
        self.disconnected = disconnected
        self.code = code


class SlowThreshold:
    """When a command counts as slow. There is one for all clients, and ``seconds`` may change at any time.

    ``seconds`` is compared with the duration of every command, so nothing else is needed while no command is slow.
    ``math.inf`` switches it off.
    """

    __slots__ = ("records_spans", "report", "seconds")

    def __init__(
        self, seconds: float, report: Callable[[Exchange, Ended], None], *, records_spans: bool = False
    ) -> None:
        """``report`` is called with every command that took at least ``seconds``; it must not raise.

        ``records_spans``: commands also record when they were rewritten and at the backend (``proxy.request.times``).
        """
        self.seconds = seconds
        self.report = report
        self.records_spans = records_spans


def report_nothing(exchange: Exchange, ended: Ended) -> None:
    """For a threshold that is never reached."""


NEVER_SLOW: Final = SlowThreshold(math.inf, report_nothing)
