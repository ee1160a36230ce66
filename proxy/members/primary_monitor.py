"""Detects whether a server has stepped down, and when there is a new primary.

A "not primary" error or a lost connection can have other causes, so the server is asked again. Clients that need the
result at the same time share one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import bson

from catalog.bson.codec import TOLERANT
from catalog.errors import BackendUnavailable
from proxy.upstream.connection import reply_document
from proxy.upstream.dialing import Dialer
from proxy.wire import op_msg
from proxy.wire.request_ids import next_request_id

ASK_TIMES: Final = 4
PAUSE_SECONDS: Final = 0.03
"""A server interrupts running commands shortly before it reports that it is not the primary."""

_HELLO: Final = bson.encode({"hello": 1, "$db": "admin"})


class PrimaryMonitor:
    """Checks servers that may have stepped down."""

    def __init__(
        self,
        dialer_to: Callable[[str], Dialer],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        left: Callable[[str], None],
    ) -> None:
        """``left`` is called with a server that is no longer the primary."""
        self._dialer_to = dialer_to
        self._spawn = spawn
        self._left = left
        self._asking: dict[str, asyncio.Future[bool]] = {}
        self.primary = ""
        """The address of the primary, if it is known."""
        self._has_primary = asyncio.Event()

    def primary_is(self, address: str) -> None:
        """Record the address of the new primary."""
        self.primary = address
        self._has_primary.set()

    async def next_primary(self, patience_seconds: float) -> None:
        """Wait until a primary is known, at most for this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                await self._has_primary.wait()

    def suspect(self, address: str) -> asyncio.Future[bool]:
        """Whether that server is no longer the primary; ``left`` is called first."""
        asking = self._asking.get(address)
        if asking is None:
            asking = self._asking[address] = asyncio.get_running_loop().create_future()
            self._spawn(self._ask(address, asking))
        # One who waits and leaves must not end the wait for the others.
        return asyncio.shield(asking)

    async def _ask(self, address: str, answer: asyncio.Future[bool]) -> None:
        has_left = False
        try:
            for turn in range(ASK_TIMES):
                if turn:
                    await asyncio.sleep(PAUSE_SECONDS)
                if not await self._is_primary(address):
                    has_left = True
                    if address == self.primary:
                        self._has_primary.clear()
                    self._left(address)
                    return
        finally:
            del self._asking[address]
            answer.set_result(has_left)

    async def _is_primary(self, address: str) -> bool:
        try:
            connection = await self._dialer_to(address).dial(lambda: None)
        except BackendUnavailable:
            return False
        try:
            reply = await connection.exchange(op_msg.build(next_request_id(), 0, _HELLO))
            said = bson.decode(reply_document(reply), codec_options=TOLERANT)
        except BackendUnavailable:
            return False
        finally:
            connection.close()
        # If hello is refused, the server's role is unknown.
        return bool(said.get("isWritablePrimary", True))
