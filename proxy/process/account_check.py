"""Watches whether the proxy's own account is logged in and has the required privileges."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from catalog.errors import UNAUTHORIZED, CommandError
from proxy.backend.account_login import NotLoggedIn

LOOK_SECONDS: Final = 30.0
LOOK_AGAIN_SECONDS: Final = 2.0
"""Interval of checks while a privilege is missing, which may be granted at any time, or commands are refused."""

log = structlog.get_logger(__name__)


class AccountCheck:
    """``trouble`` describes the missing privileges or login; ``""`` if there is none."""

    def __init__(
        self,
        account: str,
        missing_rights: Callable[[], Awaitable[Sequence[str]]],
        doubted: asyncio.Event,
        tell: Callable[[str], None],
    ) -> None:
        """``doubted`` is set when a command of the account was refused, so that a check is due.

        ``tell`` is called with ``trouble`` when it has changed.
        """
        self.trouble = ""
        self._doubted = doubted
        self._account = account
        self._missing_rights = missing_rights
        self._tell = tell

    async def look(self, *, insists: bool = False) -> None:
        """Ask the backend once; raises ``CommandError``, also if it ``insists`` and something is missing."""
        trouble = await self._found()
        if trouble and insists:
            raise CommandError(UNAUTHORIZED, trouble)
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble:
            log.error("not ready", reason=trouble)
        else:
            log.info("the backend's account has all privileges now", account=self._account)
        self._tell(trouble)

    async def _found(self) -> str:
        try:
            missing = await self._missing_rights()
        except NotLoggedIn as error:
            return f"{error.message} (account {self._account})"
        if not missing:
            return ""
        return (
            f"the backend's account {self._account} lacks privileges: {', '.join(missing)}; "
            "`tsproxy doctor` prints the commands that grant them"
        )

    async def watch(self) -> None:
        """Check until the task is cancelled; while the backend does not respond, nothing changes."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            if not self.trouble:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS - LOOK_AGAIN_SECONDS):
                        await self._doubted.wait()
            self._doubted.clear()
            with suppress(CommandError):
                await self.look()
