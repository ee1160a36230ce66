"""Blames a test that leaves a connection open, instead of the test during which the collector finds it."""

from __future__ import annotations

from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


@contextmanager
def all_closed_with_their_loop() -> Iterator[None]:
    """Closing an event loop fails if one of its connections is open, and names the ends of it.

    The collector's warning comes later, in any test, and names a file descriptor only.
    """
    close = BaseSelectorEventLoop.close

    def close_and_look(loop: Any) -> None:
        # Nothing public lists the connections of a loop.
        transports = [] if loop.is_closed() else list(vars(loop)["_transports"].values())
        left = [each for each in transports if each.get_extra_info("socket").fileno() >= 0]
        close(loop)
        ends = [f"{each.get_extra_info('sockname')} to {each.get_extra_info('peername')}" for each in left]
        assert not left, f"connections that are left open: {', '.join(ends)}"

    with patch.object(BaseSelectorEventLoop, "close", close_and_look):
        yield
