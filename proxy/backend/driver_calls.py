"""Runs reads over the driver's client without ever cancelling them.

A read whose connection is lost is sent again until it is answered or its time is over. The driver sends some reads
again, but only once, and takes away all other connections to a server when it loses one.

The driver waits for a server with a condition variable, half a second at a time. In Python 3.11, if a task is cancelled
at the moment at which such a wait ends, the condition's lock is left in a wrong state, and from then on every request
of that client waits for ever. So each request is a task of its own, which ends by the driver's own time limits; a
caller that gives up only stops waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Any, TypeVar

import pymongo
import structlog
from pymongo import AsyncMongoClient
from pymongo.errors import ConnectionFailure, InvalidOperation, OperationFailure, PyMongoError

from catalog.errors import BackendUnavailable, CommandError
from proxy.backend.driver_errors import NOT_IN_TIME, command_error
from proxy.backend.service_connection import LOGIN_REFUSED
from proxy.observe.tasks import TaskSet

log = structlog.get_logger(__name__)

T = TypeVar("T")
DriverClient = AsyncMongoClient[Any]

REQUESTS_AT_ONCE = 128
"""Maximum number of concurrent requests, including those whose caller has given up; further ones wait."""
LONGEST_SECONDS = 120.0
"""Time limit of requests without one of their own."""
OVERDUE_SECONDS = 10.0
"""A request that runs this long beyond its time limit never ends: the driver's client is replaced."""
CLOSE_SECONDS = 3.0
PAUSES_SECONDS = (0.02, 0.5)
"""The first and the longest pause before a request whose connection was lost is sent again."""

Late = tuple[str, int]
"""The error for a caller that gives up waiting: message and code."""
NO_SERVER_IN_TIME: Late = ("no suitable backend server found in time", 133)


class _Connected:
    """A client and the requests that use it."""

    def __init__(self, client: DriverClient) -> None:
        self.client = client
        self.places = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self.requests = TaskSet(_unexpected)

    async def close(self) -> None:
        """Disconnect; running requests fail, and are waited for at most ``CLOSE_SECONDS``."""
        self.requests.spawn(self._disconnect())
        # Cancelling after that is harmless, because this client is no longer used.
        await self.requests.close(CLOSE_SECONDS)

    async def _disconnect(self) -> None:
        with suppress(PyMongoError, RuntimeError):
            await self.client.close()


class DriverCalls:
    """Runs requests over a client of the driver; the only place that awaits one."""

    def __init__(self, connect: Callable[[], DriverClient]) -> None:
        """``connect`` makes a client; it is called again if the client's state is broken."""
        self._connect = connect
        self._now = _Connected(connect())
        self._retiring = TaskSet(_unexpected)

    def __len__(self) -> int:
        """Number of running requests, including those whose caller has given up."""
        return len(self._now.requests)

    @property
    def client(self) -> DriverClient:
        """The client, for uses that do not wait."""
        return self._now.client

    @property
    def patience_seconds(self) -> float:
        """How long to wait for an unavailable backend."""
        return float(self.client.options.server_selection_timeout)

    def deadline_seconds(self) -> float:
        """Until when a request that begins now waits for it, by the clock of the event loop."""
        return asyncio.get_running_loop().time() + self.patience_seconds

    async def ask(
        self,
        request: Callable[[DriverClient], Awaitable[T]],
        timeout_seconds: float | None = None,
        *,
        holds_data: bool = False,
    ) -> T:
        """The result of a read; raises ``BackendUnavailable`` if there is none in time, or ``CommandError``.

        ``holds_data``: as for ``command_error``.
        """
        loop = asyncio.get_running_loop()
        until_seconds = loop.time() + (LONGEST_SECONDS if timeout_seconds is None else timeout_seconds)
        connected = self._now
        try:
            async with asyncio.timeout_at(until_seconds):
                await connected.places.acquire()
        except TimeoutError:
            raise BackendUnavailable("all connections to the backend are busy", code=89) from None
        left_seconds = max(until_seconds - loop.time(), 0.01)
        answer = self._begin(connected, request, None if timeout_seconds is None else left_seconds)
        answer.add_done_callback(lambda _: connected.places.release())
        return await answer_within(answer, left_seconds, holds_data=holds_data)

    def begin(self, request: Callable[[DriverClient], Awaitable[T]], timeout_seconds: float) -> asyncio.Future[T]:
        """Start a read at once, regardless of the number of running ones; see ``answer_within``."""
        return self._begin(self._now, request, timeout_seconds)

    def _begin(
        self, connected: _Connected, request: Callable[[DriverClient], Awaitable[T]], timeout_seconds: float | None
    ) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        overdue_seconds = (LONGEST_SECONDS if timeout_seconds is None else timeout_seconds) + OVERDUE_SECONDS
        overdue = loop.call_later(overdue_seconds, self._replace, connected, "a request does not return")
        answer.add_done_callback(lambda _: overdue.cancel())
        task = connected.requests.spawn(self._run(connected, request, timeout_seconds, answer))
        task.add_done_callback(lambda _: _fail(answer, BackendUnavailable("disconnected from the backend")))
        return answer

    async def _run(
        self,
        connected: _Connected,
        request: Callable[[DriverClient], Awaitable[T]],
        timeout_seconds: float | None,
        answer: asyncio.Future[T],
    ) -> None:
        try:
            # The limit applies to this task's context.
            with nullcontext() if timeout_seconds is None else pymongo.timeout(timeout_seconds):
                result = await _answered(connected.client, request, timeout_seconds)
        except RuntimeError as error:
            # A broken lock of the driver raises this.
            _fail(answer, BackendUnavailable(f"the request could not be made: {error}"))
            self._replace(connected, str(error))
        except Exception as error:  # noqa: BLE001 - who asked gets it
            _fail(answer, error)
        else:
            answer.set_result(result)

    def connect_again(self, reason: str) -> None:
        """Replace the client; requests that are running get some time to end."""
        self._replace(self._now, reason)

    def _replace(self, broken: _Connected, reason: str) -> None:
        if broken is self._now:
            log.warning("the driver's client is replaced", reason=reason)
            self._now = _Connected(self._connect())
            self._retiring.spawn(broken.close())

    async def aclose(self) -> None:
        """Disconnect."""
        await self._now.close()
        await self._retiring.close(CLOSE_SECONDS)


class PrimarySearch:
    """Finds the server that accepts writes; concurrent callers share one search."""

    def __init__(self, calls: DriverCalls, patience_seconds: float) -> None:
        self._calls = calls
        self._patience_seconds = patience_seconds
        self._answer: asyncio.Future[tuple[str, int]] | None = None
        self._found: tuple[str, int] | None = None
        self._instead: tuple[str, int] | None = None
        """The answer to give while the login of the account is refused."""

    async def find(self, timeout_seconds: float | None) -> tuple[str, int]:
        """The address of the standalone, the primary or a mongos; raises ``BackendUnavailable``.

        While the backend refuses the login of the account, it is the latest address that was found.
        """
        answer = self._answer
        if answer is None or answer.done():
            answer = self._answer = self._calls.begin(_primary, self._patience_seconds)
            answer.add_done_callback(self._ended)
        if self._instead is None:
            try:
                return await answer_within(answer, timeout_seconds, NO_SERVER_IN_TIME)
            except CommandError:
                # The end of the search is known: ``_ended`` was called first.
                if self._instead is None:
                    raise
        return self._instead

    def _ended(self, answer: asyncio.Future[tuple[str, int]]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        is_login_refused = isinstance(error, OperationFailure) and error.code in LOGIN_REFUSED
        self._instead = self._found if is_login_refused else None
        if error is None:
            self._found = answer.result()


async def answer_within(
    answer: asyncio.Future[T], timeout_seconds: float | None, late: Late = NOT_IN_TIME, *, holds_data: bool = False
) -> T:
    """The result of a request, or its error; giving up or being cancelled does not affect the request."""
    await asyncio.wait((answer,), timeout=timeout_seconds)
    if not answer.done():
        raise BackendUnavailable(late[0], code=late[1])
    error = answer.exception()
    if isinstance(error, PyMongoError):
        raise command_error(error, holds_data=holds_data) from None
    if isinstance(error, BackendUnavailable):
        raise BackendUnavailable(error.message, code=error.code)  # each caller needs its own
    return answer.result()


async def _answered(
    client: DriverClient, request: Callable[[DriverClient], Awaitable[T]], timeout_seconds: float | None
) -> T:
    """The result of a read, which is sent again if its connection is lost."""
    loop = asyncio.get_running_loop()
    patience_seconds = client.options.server_selection_timeout if timeout_seconds is None else timeout_seconds
    until_seconds = loop.time() + patience_seconds
    pause_seconds, longest_seconds = PAUSES_SECONDS
    lost: ConnectionFailure | None = None
    while True:
        try:
            return await request(client)
        except ConnectionFailure as error:
            # If time is what was lacking, the driver has waited already.
            if error.timeout or loop.time() + pause_seconds >= until_seconds:
                raise
            lost = error
        except InvalidOperation:
            # The client was closed meanwhile.
            if lost is None:
                raise
            raise lost from None
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, longest_seconds)


async def _primary(client: DriverClient) -> tuple[str, int]:
    await client.admin.command("ping")
    address: tuple[str, int | None] | None = await client.address if len(client.nodes) <= 1 else await client.primary
    if address is None:
        nodes = sorted(node for node in client.nodes if node[1] is not None)
        if not nodes:
            raise BackendUnavailable("no backend server is known", code=133)
        address = (nodes[0][0], nodes[0][1])
    host, port = address
    return host, int(port or 27017)


def _fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        # All callers may have given up.
        answer.exception()


def _unexpected(error: BaseException) -> None:
    log.error("a request to the backend ended with an error", exc_info=error)
