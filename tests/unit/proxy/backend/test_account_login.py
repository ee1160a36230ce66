"""Whether the account is logged in, and when the proxy tries to log in again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import bson
import pytest
from structlog.testing import capture_logs

from catalog.errors import BackendUnavailable, CommandError
from proxy.backend.account_login import PAUSE_SECONDS, AccountLogin, NotLoggedIn
from proxy.backend.driver_calls import DriverCalls
from proxy.backend.service import PoolFamily, ServicePool

LISTS = {"resource": {"db": "", "collection": ""}, "actions": ["listCollections"]}


class Backend:
    """What the server says, and the connections to it; those of the driver and of the pool are logged in or not."""

    def __init__(self, *, driver: bool = True, pool: bool = True, exists: bool = True) -> None:
        self.driver, self.pool, self.exists = driver, pool, exists
        self.family = PoolFamily()
        self.attempts = 0
        self.failure: BackendUnavailable | None = None
        self.login = AccountLogin(cast("DriverCalls", self), self.run, cast("ServicePool", self))

    def _status(self, *, logged_in: bool) -> dict[str, Any]:
        users = [{"user": "tsproxy", "db": "admin"}] if logged_in else []
        return {
            "authInfo": {"authenticatedUsers": users, "authenticatedUserPrivileges": [LISTS] if users else []},
            "ok": 1.0,
        }

    def deadline_seconds(self) -> float:
        return asyncio.get_running_loop().time() + 5.0

    async def run(self, database: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        return self._status(logged_in=self.driver)

    async def request(self, body: bytes, deadline_seconds: float) -> bytes:
        return bson.encode(self._status(logged_in=self.pool))

    async def log_in_again(self, deadline_seconds: float) -> None:
        self.attempts += 1
        if not self.exists:
            raise BackendUnavailable("Authentication failed.", code=18)
        self.pool = True

    def connect_again(self, reason: str) -> None:
        self.driver = True

    def refuse(self) -> None:
        self.family.on_refused(cast("ServicePool", self))


async def test_privileges_of_an_account_that_is_logged_in() -> None:
    backend = Backend()
    assert await backend.login.privileges() == [LISTS]
    backend.refuse()
    assert backend.login.doubted.is_set()
    assert await backend.login.privileges() == [LISTS]
    assert backend.attempts == 0


@pytest.mark.parametrize("logged_out", ["driver", "pool"])
async def test_connections_that_are_logged_out_are_replaced(logged_out: str) -> None:
    backend = Backend(**{logged_out: False})
    backend.refuse()
    with capture_logs() as logged:
        assert await backend.login.privileges() == [LISTS]
    assert [each["event"] for each in logged] == ["the backend's account has logged in again"]
    assert (backend.attempts, backend.driver, backend.pool) == (1, True, True)


async def test_the_pool_is_asked_only_if_it_was_refused_something() -> None:
    backend = Backend(pool=False)
    assert await backend.login.privileges() == [LISTS]
    assert backend.attempts == 0


async def test_an_account_that_is_gone_is_not_tried_all_the_time() -> None:
    backend = Backend(driver=False, pool=False, exists=False)
    for _ in range(3):
        with pytest.raises(
            NotLoggedIn, match="not logged in any more, and cannot log in again: Authentication failed;"
        ):
            await backend.login.privileges()
    assert backend.attempts == 1
    assert not backend.driver


async def test_a_new_connection_of_the_driver_that_cannot_log_in() -> None:
    backend = Backend(exists=False)
    backend.failure = BackendUnavailable("Authentication failed.", code=18)
    with pytest.raises(NotLoggedIn):
        await backend.login.privileges()


async def test_a_backend_that_does_not_answer_says_nothing_of_the_login() -> None:
    backend = Backend()
    backend.failure = BackendUnavailable("cut off", code=89)
    with pytest.raises(CommandError, match="cut off"):
        await backend.login.privileges()
    assert backend.attempts == 0


async def test_the_driver_is_not_asked_again_before_the_account_can_log_in() -> None:
    """It would wait for a connection that cannot log in."""
    backend = Backend(driver=False, exists=False)
    with pytest.raises(NotLoggedIn):
        await backend.login.privileges()
    assert backend.login.is_lost
    backend.failure = BackendUnavailable("not in time", code=89)
    with pytest.raises(NotLoggedIn):
        await backend.login.privileges()
    backend.failure, backend.exists = None, True
    async with asyncio.timeout(PAUSE_SECONDS * 3):
        while backend.login.is_lost:
            await asyncio.sleep(PAUSE_SECONDS / 5)
            with suppress(NotLoggedIn):
                assert await backend.login.privileges() == [LISTS]
