"""A small TCP link between two processes that can be cut, held and slowed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from tests.support.ports import LOOPBACK, free_port

CHUNK_BYTES = 64 * 1024


class _Pair:
    """One client connection and the connection to the target that goes with it, once there is one."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self._ends = [near]

    def join(self, far: asyncio.StreamWriter) -> None:
        """The connection to the target has been made."""
        self._ends.append(far)

    def cut(self) -> None:
        """Reset both ends; what is still buffered is lost."""
        for writer in self._ends:
            writer.transport.abort()


class Link:
    """Listens on ``port``, a free one unless it is given, and passes bytes to and from ``target_port``.

    All methods may be called from any thread.
    """

    def __init__(self, target_port: int, *, target_host: str = LOOPBACK, port: int | None = None) -> None:
        self.target_port = target_port
        self.target_host = target_host
        self.port = port or free_port()
        self.cuts = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._pairs: set[_Pair] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._answers = asyncio.Event()
        self._delay_seconds = 0.0
        self._cut_requests = 0
        self._cut_replies = 0
        self._least_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._open.set()
        self._answers.set()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def uri(self) -> str:
        """For a client that is to go nowhere else."""
        return f"mongodb://{LOOPBACK}:{self.port}/?directConnection=true"

    # --- faults --------------------------------------------------------------------------------------------

    def cut_all(self) -> None:
        """Reset every connection that is open."""
        self._do(self._cut_all)

    def cut_before_requests(self, count: int, *, least_bytes: int = 0) -> None:
        """The next ``count`` pieces from clients, of at least so many bytes, are lost with their connections."""
        self._do(lambda: self._arm(count, 0, least_bytes))

    def cut_before_replies(self, count: int, *, least_bytes: int = 0) -> None:
        """The next ``count`` such pieces pass; the first piece of the answer is lost with the connection."""
        self._do(lambda: self._arm(0, count, least_bytes))

    def hold(self) -> None:
        """Nothing passes in either direction until ``release``; connections stay open."""
        self._do(self._open.clear)
        self._do(self._answers.clear)

    def hold_answers(self) -> None:
        """Nothing comes back from the target until ``release``; what goes there passes."""
        self._do(self._answers.clear)

    def lose(self) -> None:
        """``hold``, and what is held is lost at once, with every connection that was open."""
        self.hold()
        self.cut_all()

    def release(self) -> None:
        """What was held goes on."""
        self._do(self._answers.set)
        self._do(self._open.set)

    def slow(self, delay_seconds: float) -> None:
        """Every piece is late."""
        self._delay_seconds = delay_seconds

    # --- inside --------------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _do(self, work: Callable[[], object]) -> None:
        async def run() -> None:
            work()

        self._call(run())

    def _arm(self, requests: int, replies: int, least_bytes: int) -> None:
        self._cut_requests, self._cut_replies, self._least_bytes = requests, replies, least_bytes

    def _cut_all(self) -> None:
        for pair in list(self._pairs):
            pair.cut()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accepted, LOOPBACK, self.port)

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._cut_all()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A pair is known before its task begins, which may be never: then it is cut with the others.
        pair = _Pair(writer)
        self._pairs.add(pair)
        task = self._loop.create_task(self._connect(pair, reader, writer))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def _connect(self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        armed = asyncio.Event()
        try:
            far_reader, far_writer = await asyncio.open_connection(self.target_host, self.target_port)
            pair.join(far_writer)
            await asyncio.gather(
                self._pass(reader, far_writer, self._open, lambda size: self._request_passes(pair, size, armed)),
                self._pass(far_reader, writer, self._answers, lambda size: self._reply_passes(pair, armed)),
            )
        except OSError:
            pass
        finally:
            pair.cut()
            self._pairs.discard(pair)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        may_pass: asyncio.Event,
        passes: Callable[[int], bool],
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if self._delay_seconds:
                await asyncio.sleep(self._delay_seconds)
            await may_pass.wait()
            if not passes(len(data)):
                return
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    def _request_passes(self, pair: _Pair, size: int, armed: asyncio.Event) -> bool:
        if size >= self._least_bytes:
            if self._cut_requests:
                self._cut_requests -= 1
                self.cuts += 1
                pair.cut()
                return False
            if self._cut_replies:
                self._cut_replies -= 1
                armed.set()
        return True

    def _reply_passes(self, pair: _Pair, armed: asyncio.Event) -> bool:
        if armed.is_set():
            self.cuts += 1
            pair.cut()
            return False
        return True
