"""Watches whether the proxy's own account has the required privileges."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from catalog.errors import UNAUTHORIZED, CommandError

LOOK_SECONDS: Final = 30.0
LOOK_AGAIN_SECONDS: Final = 2.0
"""Interval of checks while a privilege is missing, which may be granted at any time."""

log = structlog.get_logger(__name__)


class AccountCheck:
    """``trouble`` describes the missing privileges; ``""`` if there are none."""

    def __init__(
        self, account: str, missing_rights: Callable[[], Awaitable[Sequence[str]]], tell: Callable[[str], None]
    ) -> None:
        """``tell`` is called with ``trouble`` when it has changed."""
        self.trouble = ""
        self._account = account
        self._missing_rights = missing_rights
        self._tell = tell

    async def look(self, *, insists: bool = False) -> None:
        """Ask the backend once; raises ``CommandError``, also if it ``insists`` and something is missing."""
        missing = await self._missing_rights()
        trouble = (
            f"the backend's account {self._account} lacks privileges: {', '.join(missing)}; "
            "`tsproxy doctor` prints the commands that grant them"
            if missing
            else ""
        )
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

    async def watch(self) -> None:
        """Check until the task is cancelled; while the backend does not respond, nothing changes."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_SECONDS if self.trouble else LOOK_SECONDS)
            with suppress(CommandError):
                await self.look()
