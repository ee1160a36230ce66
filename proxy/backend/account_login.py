"""Whether the proxy's own account is logged in at the backend, and logging in again.

A server logs out all connections of a user that is dropped, also if the user is created again. Neither the driver nor
the service connections see this: the server only refuses their commands with error 13, as if a privilege were missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

import structlog

from catalog.bson.codec import decode, encode
from catalog.errors import UNAUTHORIZED, CommandError
from proxy.backend.driver_calls import DriverCalls
from proxy.backend.least_role import Privilege
from proxy.backend.service import ServicePool
from proxy.backend.service_connection import LOGIN_REFUSED
from proxy.request.authorisation import PRIVILEGES
from proxy.request.ports import RunCommand

log = structlog.get_logger(__name__)

PAUSE_SECONDS: Final = 1.0
"""Minimum time between two attempts to log in."""

STATUS: Final = encode({"connectionStatus": 1, "$db": "admin"})
"""The command whose reply names the user of a connection."""


class NotLoggedIn(CommandError):
    """The account is not logged in any more, so nothing is known of its privileges."""


class AccountLogin:
    """Asks for the privileges of the account, and makes all connections anew if these are logged out."""

    def __init__(self, calls: DriverCalls, run: RunCommand, pool: ServicePool) -> None:
        """``run`` asks over ``calls``; ``pool`` and those that were made from it are used for everything else."""
        self.doubted = asyncio.Event()
        """Set when a command of the account was refused: it may have lost privileges, or not be logged in."""
        self.is_lost = False
        """Whether the account was not logged in at the latest look."""
        self._calls = calls
        self._run = run
        self._pool = pool
        self._refused: set[ServicePool] = set()
        self._next_attempt_seconds = 0.0
        self._reason = ""
        pool.family.on_refused = self._doubt

    async def privileges(self) -> Sequence[Privilege]:
        """Those of the account; raises ``CommandError``, namely ``NotLoggedIn`` if it cannot log in again."""
        answer = None if self.is_lost else await self._asked()
        if answer is None or not await self._pools_are_logged_in():
            self.is_lost = True
            await self._log_in()
            answer = await self._asked()
        self.is_lost = answer is None
        if answer is None:
            raise self._error()
        told: Sequence[Privilege] = answer["authInfo"].get("authenticatedUserPrivileges", ())
        return told

    def _doubt(self, pool: ServicePool) -> None:
        self._refused.add(pool)
        self.doubted.set()

    async def _asked(self) -> Mapping[str, Any] | None:
        """The answer on a connection of the driver; ``None`` if this is not logged in."""
        return await _unless_refused(self._run("admin", dict(PRIVILEGES)))

    async def _pools_are_logged_in(self) -> bool:
        """Whether those are whose commands were refused: a pool uses again the connection that it used last."""
        refused, self._refused = self._refused, set()
        for pool in refused:
            if await _unless_refused(self._status(pool)) is None:
                return False
        return True

    async def _status(self, pool: ServicePool) -> Mapping[str, Any]:
        return decode(await pool.request(STATUS, self._calls.deadline_seconds()))

    async def _log_in(self) -> None:
        """Replace all connections if the backend accepts the account; the old ones remain otherwise."""
        now_seconds = asyncio.get_running_loop().time()
        if now_seconds < self._next_attempt_seconds:
            raise self._error()
        self._next_attempt_seconds = now_seconds + PAUSE_SECONDS
        try:
            await self._pool.log_in_again(self._calls.deadline_seconds())
        except CommandError as error:
            if error.code not in LOGIN_REFUSED:
                raise
            self._reason = error.message
            raise self._error() from None
        self._reason = ""
        self._calls.connect_again("the backend's account was logged out")
        log.info("the backend's account has logged in again")

    def _error(self) -> NotLoggedIn:
        reason = f": {self._reason.rstrip('.')}" if self._reason else ""
        return NotLoggedIn(
            UNAUTHORIZED,
            f"the backend's account is not logged in any more, and cannot log in again{reason}; "
            "its user may have been dropped, or have another password",
        )


async def _unless_refused(asked: Awaitable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The answer to ``connectionStatus`` if a user is logged in."""
    try:
        answer = await asked
    except CommandError as error:
        if error.code not in LOGIN_REFUSED:
            raise
        # A new connection cannot log in.
        return None
    return answer if answer.get("authInfo", {}).get("authenticatedUsers") else None
