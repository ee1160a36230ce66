"""Service connections: connections of the proxy's own account, for commits and other frequent commands.

They use OP_MSG directly, without the driver, because every writer waits for a commit. Less frequent commands go through
the driver's client (``proxy.backend.backend``), which also finds the primary.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from catalog.errors import BackendUnavailable, Withheld
from catalog.ports import MaySend
from proxy.backend.cluster_times import ClusterTimes
from proxy.backend.primary_identity import PrimaryIdentity
from proxy.backend.request_places import RequestPlaces
from proxy.backend.service_connection import (
    LOGIN_REFUSED,
    Authenticate,
    LostAfterSending,
    NotSent,
    OnAnswer,
    ServiceAnswer,
    ServiceConnection,
    Waiter,
)
from proxy.backend.write_numbers import WriteNumbers
from proxy.request.authorisation import is_unauthorized
from proxy.upstream.connecting import connect
from proxy.upstream.keepalive import keep_alive

_SHORTEST_WAIT_SECONDS = 2.0
"""The time to wait for a reply if the deadline is earlier, or has passed already."""


OnAnswered = Callable[[str, int, float], None]
"""Called for each reply: name and length of the document sequence, and the response time in seconds."""


class Deadlines:
    """Ends requests whose deadline has passed. All requests share one timer, because one for each would cost more."""

    def __init__(self) -> None:
        self._under_way: dict[ServiceConnection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_seconds = 0.0

    def watch(self, connection: ServiceConnection, deadline_seconds: float) -> None:
        """Expire the connection at this time of the event loop's clock, unless ``forget`` is called before."""
        self._under_way[connection] = deadline_seconds
        if self._timer is None or deadline_seconds < self._due_seconds:
            self._schedule(deadline_seconds)

    def forget(self, connection: ServiceConnection) -> None:
        """The connection's request has ended."""
        self._under_way.pop(connection, None)

    def retire_all(self) -> None:
        """Close each connection after the request that is under way."""
        for connection in self._under_way:
            connection.is_retired = True

    def _schedule(self, due_seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_seconds = due_seconds
        self._timer = asyncio.get_running_loop().call_at(due_seconds, self._expire)

    def _expire(self) -> None:
        # An event loop may call a timer slightly before its time.
        now_seconds = max(asyncio.get_running_loop().time(), self._due_seconds)
        self._timer = None
        for connection, deadline_seconds in list(self._under_way.items()):
            if deadline_seconds <= now_seconds:
                del self._under_way[connection]
                connection.expire()
        if self._under_way:
            self._schedule(min(self._under_way.values()))


class _Request:
    """A request under way."""

    def __init__(
        self, pool: ServicePool, connection: ServiceConnection, told: OnAnswer, identifier: str, length: int
    ) -> None:
        self._pool = pool
        self._connection = connection
        self._told = told
        self._identifier = identifier
        self._length = length
        self._is_under_way = True
        self._sent_at_seconds = time.perf_counter()  # the loop's time is in whole milliseconds

    def answered(self, answer: ServiceAnswer) -> None:
        """Called by the connection."""
        pool = self._pool
        self._is_under_way = False
        pool.ended(self._connection)
        if isinstance(answer, bytes):
            seconds = time.perf_counter() - self._sent_at_seconds
            pool.replied(self._connection, self._identifier, self._length, seconds)
            if is_unauthorized(answer):
                pool.family.on_refused(pool)
        else:
            pool.forget_primary()
        self._told(answer)

    def abandon(self) -> None:
        """Nobody waits for the answer any more."""
        if self._is_under_way:
            self._is_under_way = False
            self._connection.abandon()
            self._pool.ended(self._connection)


class PoolFamily:
    """The pools with connections of one account."""

    def __init__(self) -> None:
        self.pools: list[ServicePool] = []
        self.times = ClusterTimes()
        self.secret = b""
        """What only holders of the account know (``proxy.request.service_sessions.session_secret``)."""
        self.primary = PrimaryIdentity()
        self.numbers: WriteNumbers | None = None
        """Of the writes of this process; ``None`` if the backend takes none."""
        self.on_refused: Callable[[ServicePool], None] = lambda pool: None
        """Called if the backend answers a command of a pool with error 13."""


class ServicePool:
    """A pool of service connections to the primary."""

    def __init__(
        self,
        find_primary: Callable[[float], Awaitable[tuple[str, int]]],
        authenticate: Authenticate | None,
        tls: ssl.SSLContext | None,
        connect_timeout_seconds: float,
        size: int = 16,
        answered: OnAnswered = lambda identifier, length, seconds: None,
        family: PoolFamily | None = None,
    ) -> None:
        """``find_primary(timeout in seconds)`` raises ``BackendUnavailable`` if no primary is found in time.

        ``answered`` is called after each reply.
        """
        self.family = PoolFamily() if family is None else family
        self.family.pools.append(self)
        self.find_primary = find_primary
        self._authenticate = authenticate
        self.tls = tls
        self._connect_timeout_seconds = connect_timeout_seconds
        self._size = size
        self._idle: deque[ServiceConnection] = deque()
        self._places = RequestPlaces(size)
        self._primary: tuple[str, int] | None = None
        self._deadlines = Deadlines()
        self._closed = False
        self._answered = answered

    @property
    def address(self) -> str:
        """The address of the primary; ``""`` before it is known."""
        return "" if self._primary is None else "{}:{}".format(*self._primary)

    def another(self, size: int) -> ServicePool:
        """Another pool with the same settings, for slow requests: requests of this pool do not wait for those."""
        return ServicePool(
            self.find_primary,
            self._authenticate,
            self.tls,
            self._connect_timeout_seconds,
            size,
            family=self.family,
        )

    async def log_in_again(self, deadline_seconds: float) -> None:
        """Replace the connections of all pools of the account, if a new one can log in.

        Raises ``NotSent`` otherwise, and all connections remain.
        """
        connection = await self._connected_anew(deadline_seconds)
        for pool in self.family.pools:
            pool.retire_connections()
        self._idle.append(connection)

    def retire_connections(self) -> None:
        """Close the idle connections, and each of the others after its request."""
        self._deadlines.retire_all()
        self._close_idle()

    def forget_primary(self) -> None:
        """Close the idle connections and find the primary again, because it may have changed."""
        self._primary = None
        self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        """Close every idle connection; those in use are closed at the end of their request."""
        self._closed = True
        self.forget_primary()

    def begin(
        self,
        told: OnAnswer,
        body: bytes,
        deadline_seconds: float,
        identifier: str = "",
        documents: Sequence[bytes] = (),
    ) -> bool:
        """Send one command if a connection is free, and call ``told`` with the answer in a later turn of the loop.

        If none is free, nothing happens, and the result is false.
        """
        if not self._places.take():
            return False
        connection = self._idle_connection()
        if connection is None:
            self._places.release()
            return False
        self._send(connection, told, body, deadline_seconds, identifier, documents)
        return True

    async def request(
        self,
        body: bytes,
        deadline_seconds: float,
        identifier: str = "",
        documents: Sequence[bytes] = (),
        may_send: MaySend | None = None,
        numbered: Callable[[bytes], bytes] | None = None,
    ) -> bytes:
        """Send one command on any connection; returns the reply document.

        ``numbered`` makes of the body what is sent, in the moment before.

        Raises ``NotSent`` if it cannot be sent before the deadline, ``Withheld`` if it may not be sent once there is a
        connection, and ``LostAfterSending`` if the connection is lost or no reply arrives by the deadline: writers must
        not wait for a backend that is stopped or cut off.
        """
        if not self._places.take():
            try:
                async with asyncio.timeout_at(deadline_seconds):
                    await self._places.acquire()
            except TimeoutError:
                raise NotSent("all connections to the backend are busy") from None
        waiter = Waiter()
        try:
            connection = await self._connected(deadline_seconds)
            if may_send is not None and not may_send():
                self._idle.append(connection)
                raise Withheld
            if numbered is not None:
                body = numbered(body)
            request = self._send(connection, waiter.tell, body, deadline_seconds, identifier, documents)
        except BaseException:
            self._places.release()
            raise
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            request.abandon()
            raise

    def _send(
        self,
        connection: ServiceConnection,
        told: OnAnswer,
        body: bytes,
        deadline_seconds: float,
        identifier: str,
        documents: Sequence[bytes],
    ) -> _Request:
        """Send this on a connection in the place that was taken, which is free once there is an answer."""
        request = _Request(self, connection, told, identifier, len(documents))
        earliest_seconds = asyncio.get_running_loop().time() + _SHORTEST_WAIT_SECONDS
        connection.send(request.answered, body, identifier, documents)
        self._deadlines.watch(connection, max(deadline_seconds, earliest_seconds))
        return request

    def ended(self, connection: ServiceConnection) -> None:
        """The request on this connection has ended."""
        self._deadlines.forget(connection)
        self._places.release()

    def replied(self, connection: ServiceConnection, identifier: str, length: int, seconds: float) -> None:
        """The reply has arrived, ``seconds`` after the request was sent."""
        self._answered(identifier, length, seconds)
        if self._closed or connection.is_retired:
            connection.close()
        else:
            self._idle.append(connection)

    def _idle_connection(self) -> ServiceConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connected(self, deadline_seconds: float) -> ServiceConnection:
        if (idle := self._idle_connection()) is not None:
            return idle
        return await self._connected_anew(deadline_seconds)

    async def _connected_anew(self, deadline_seconds: float) -> ServiceConnection:
        loop = asyncio.get_running_loop()
        pause_seconds = 0.02
        while True:
            try:
                return await self._connect(deadline_seconds)
            except (OSError, TimeoutError, BackendUnavailable) as error:
                if isinstance(error, BackendUnavailable) and error.code in LOGIN_REFUSED:
                    # The server has answered, so it is still the primary.
                    self.family.on_refused(self)
                    raise NotSent(error.message, code=error.code) from None
                self._primary = None
                if isinstance(error, BackendUnavailable) and not isinstance(error, (NotSent, LostAfterSending)):
                    raise NotSent(error.message, code=error.code) from None
                if loop.time() + pause_seconds >= deadline_seconds:
                    raise NotSent(f"cannot reach the backend: {error}") from None
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, 0.5)

    async def _connect(self, deadline_seconds: float) -> ServiceConnection:
        loop = asyncio.get_running_loop()
        left_seconds = max(deadline_seconds - loop.time(), 0.01)
        if self._primary is None:
            self._primary = await self.find_primary(left_seconds)
        host, port = self._primary
        address = f"{host}:{port}"
        async with asyncio.timeout(min(left_seconds, self._connect_timeout_seconds)):
            transport, connection = await connect(lambda: ServiceConnection(address), host, port, self.tls)
            keep_alive(transport)
            if self._authenticate is not None:
                try:
                    await self._authenticate(connection)
                except BaseException:
                    connection.close()
                    raise
        return connection
