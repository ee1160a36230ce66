"""The load generator in Python, for machines without a C compiler: the same options, the same JSON.

Several processes share the connections, since one is too slow to be no bottleneck; with few cores it still is one,
and then the figures say more about it than about the servers.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import selectors
import socket
import struct
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import bson

DAY_MS, LATE_MS = 86_400_000, 7_200_000
MASK = (1 << 64) - 1


def _arguments(argv: Sequence[str]) -> Namespace:
    parser = ArgumentParser()
    for name, default in (
        ("host", "127.0.0.1"),
        ("hello", ""),
        ("message", ""),
        ("get-more", ""),
        ("account", ""),
        ("port", ""),
    ):
        parser.add_argument(f"--{name}", default=default)
    for name in ("operations", "document-offset", "document-length", "cursor-offset", "session-offset"):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in (
        "more-session-offset",
        "base-ms",
        "first-tick",
        "run",
        "interval-ms",
        "burst-ms",
        "period-ms",
        "curve-ms",
    ):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name, number in (("connections", 1), ("documents", 1), ("series", 1), ("step-ms", 1000), ("expect-n", -1)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--warmup-seconds", type=float, default=0.0)
    parser.add_argument("--sharing", default="shared")
    parser.add_argument("--order", default="in-order")
    parser.add_argument("--patch", action="append", default=[])
    return parser.parse_args(argv)


def mixed(x: int) -> int:
    """The finaliser of splitmix64, as in the C form."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


class Writer:
    """Gives out measurements and patches them into messages. A worker of several has its share of the sequence."""

    def __init__(self, options: Namespace, worker: int, workers: int) -> None:
        self.options = options
        self.sequence, self.stride = worker, workers
        self.patches = [patch.split(":") for patch in options.patch]

    def place(self, index: int, sent: int) -> tuple[int, int]:
        """Series and tick of the next measurement of connection ``index``, which has sent ``sent``."""
        options = self.options
        if options.sharing == "partitioned" and options.series >= options.connections:
            own = -(-(options.series - index) // options.connections)
            return index + sent % own * options.connections, sent // own + options.first_tick
        k = self.sequence
        self.sequence += self.stride
        if options.sharing == "random":
            return random.randrange(options.series), k + options.first_tick
        return k % options.series, k // options.series + options.first_tick

    def _time_ms(self, series: int, tick: int) -> int:
        options = self.options
        start: int = options.base_ms + mixed(series) % 1000
        if options.order == "two-days":
            return start + (tick & 1) * DAY_MS + (tick >> 1) * int(options.step_ms)
        late = LATE_MS if options.order == "late" and (tick + series) % 10 == 9 else 0
        return start + tick * int(options.step_ms) - late

    def patch(self, message: bytearray, index: int, sent: int) -> None:
        """Write the next measurements of this connection into its message."""
        for document in range(self.options.documents if self.patches else 0):
            series, tick = self.place(index, sent + document)
            at = self.options.document_offset + document * self.options.document_length
            for number, (kind, offset, *width) in enumerate(self.patches):
                raw = self._value(kind, number, series, tick, int(width[0]) if width else 0)
                message[at + int(offset) : at + int(offset) + len(raw)] = raw

    def _value(self, kind: str, number: int, series: int, tick: int, width: int) -> bytes:
        match kind:
            case "id":
                return struct.pack(">III", self.options.run, series, tick & 0xFFFFFFFF)
            case "time":
                return struct.pack("<q", self._time_ms(series, tick))
            case "int32":
                return struct.pack("<i", series)
            case "digits":
                return str(series % 10**width).zfill(width).encode()
        level = mixed(series * 64 + number) % 90
        noise = mixed((series << 40) ^ (tick << 6) ^ number) % 11
        return struct.pack("<d", (level + noise) / (10.0 if kind == "tenth" else 1.0))


class Client:
    """One connection with one request in flight."""

    def __init__(self, options: Namespace, index: int) -> None:
        self.options, self.index = options, index
        self.message = bytearray(Path(options.message).read_bytes())
        self.more = bytearray(Path(options.get_more).read_bytes()) if options.get_more else bytearray()
        if options.session_offset:
            struct.pack_into("<I", self.message, options.session_offset, index)
        if options.more_session_offset:
            struct.pack_into("<I", self.more, options.more_session_offset, index)
        self.sent = 0
        self.started = 0.0
        self.received = bytearray()
        ports = options.port.split(",")
        self.socket = socket.create_connection((options.host, int(ports[index % len(ports)])))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.hello:
            self.socket.sendall(Path(options.hello).read_bytes())
            while not self.complete():
                self.received += self.socket.recv(65536)
            self.received.clear()

    def complete(self) -> bool:
        """Whether the reply is there."""
        return len(self.received) >= 4 and len(self.received) >= struct.unpack_from("<i", self.received)[0]

    def start(self, writer: Writer) -> None:
        """Send the next operation."""
        writer.patch(self.message, self.index, self.sent)
        self.sent += int(self.options.documents)
        self.started = time.perf_counter()
        self.socket.sendall(self.message)

    def take_reply(self, tally: dict[str, Any]) -> bool:
        """Look at the reply; true when the operation is over."""
        reply = bson.decode(bytes(self.received[21:]))
        tally["requests"] += 1
        wanted = self.options.expect_n
        if reply.get("ok") != 1 or "writeErrors" in reply or (wanted >= 0 and reply.get("n") != wanted):
            tally["errors"] += 1
            tally["first_error"] = tally["first_error"] or str(reply)[:300].replace('"', "")
        cursor = reply.get("cursor", {})
        tally["reply_bytes"] += len(self.received)
        tally["reply_documents"] += len(cursor.get("firstBatch", cursor.get("nextBatch", reply.get("values", ()))))
        self.received.clear()
        if not cursor.get("id") or not self.more:
            return True
        struct.pack_into("<q", self.more, self.options.cursor_offset, cursor["id"])
        self.socket.sendall(self.more)
        return False


def _fresh_tally() -> dict[str, Any]:
    counts = dict.fromkeys(("requests", "errors", "reply_bytes", "reply_documents"), 0)
    return {**counts, "first_error": "", "latencies": [], "finished_at": []}


class Pace:
    """When a client may start its next operation."""

    def __init__(self, options: Namespace) -> None:
        self._interval_seconds = options.interval_ms / 1000
        self._burst_seconds, self._period_seconds = options.burst_ms / 1000, options.period_ms / 1000
        self._began = time.perf_counter()
        self.exists = bool(options.interval_ms or options.period_ms)

    def allows(self, client: Client) -> bool:
        """Whether it may start now."""
        now = time.perf_counter()
        if now < client.started + self._interval_seconds:
            return False
        return not self._period_seconds or (now - self._began) % self._period_seconds < self._burst_seconds


def _pump(
    selector: selectors.BaseSelector, writer: Writer, tally: dict[str, Any], end: float, operations: int, started: int
) -> int:
    """Keep all clients busy until ``end``, or until ``operations`` are started; then wait for what is in flight."""
    busy = 0
    waiting: deque[Client] = deque()
    pace = Pace(writer.options)
    for key in selector.get_map().values():
        if not operations or started < operations:
            key.data.start(writer)
            started, busy = started + 1, busy + 1
    while busy or waiting:
        while waiting and (pace.allows(waiting[0]) or time.perf_counter() >= end):
            client = waiting.popleft()
            if time.perf_counter() < end and (not operations or started < operations):
                client.start(writer)
                started, busy = started + 1, busy + 1
        for key, _ in selector.select(0.002 if waiting or not busy else 30):
            client = key.data
            client.received += client.socket.recv(1 << 20)
            if not client.complete() or not client.take_reply(tally):
                continue
            now = time.perf_counter()
            tally["latencies"].append(now - client.started)
            tally["finished_at"].append(now)
            busy -= 1
            if pace.exists:
                waiting.append(client)
            elif time.perf_counter() < end and (not operations or started < operations):
                client.start(writer)
                started, busy = started + 1, busy + 1
    return started


def _work(options: Namespace, worker: int, workers: int, pipe: Pipe) -> None:
    selector = selectors.DefaultSelector()
    for index in range(worker, options.connections, workers):
        client = Client(options, index)
        selector.register(client.socket, selectors.EVENT_READ, client)
    writer = Writer(options, worker, workers)
    operations = options.operations // workers + (worker < options.operations % workers)
    total = 0
    pipe.send("ready")
    pipe.recv()
    warm = _fresh_tally()
    if options.warmup_seconds:
        total = _pump(selector, writer, warm, time.perf_counter() + options.warmup_seconds, 0, 0)
    pipe.send("warm")
    pipe.recv()
    tally = _fresh_tally()
    start, cpu = time.perf_counter(), time.process_time()
    if not options.operations or operations:
        total += _pump(selector, writer, tally, start + options.seconds, operations, 0)
    tally["finished_at"] = [moment - start for moment in tally["finished_at"]]
    tally |= {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu, "total": total}
    tally["errors"] += warm["errors"]
    tally["first_error"] = tally["first_error"] or warm["first_error"]
    tally["requests"] += warm["requests"]
    pipe.send(tally)


def _usage(pids: Sequence[str]) -> dict[str, tuple[float, int]]:
    found = {}
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        found[pid] = (cpu, int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))
    return found


def _percentile(ordered: Sequence[float], part: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1e6, 1) if ordered else 0.0


def main(argv: Sequence[str]) -> None:
    """Run and print the result."""
    options = _arguments(argv)
    workers = max(1, min(os.cpu_count() or 1, options.connections))
    pipes, children = [], []
    for worker in range(workers):
        here, there = multiprocessing.Pipe()
        child = multiprocessing.Process(target=_work, args=(options, worker, workers, there), daemon=True)
        child.start()
        there.close()  # so that the end of a worker that cannot connect is noticed
        pipes.append(here)
        children.append(child)
    for _ in ("ready", "warm"):
        for pipe in pipes:
            pipe.recv()
        before = _usage(options.account.split(",") if options.account else [])
        for pipe in pipes:
            pipe.send("go")
    tallies: list[dict[str, Any]] = [pipe.recv() for pipe in pipes]
    after = _usage(list(before))
    for child in children:
        child.join()
    print(json.dumps(_result(options, tallies, before, after)))


def _curve(tallies: Sequence[dict[str, Any]], interval_seconds: float, documents: int) -> list[list[float]]:
    """End, measurements and p99 of each interval."""
    if not interval_seconds:
        return []
    intervals: dict[int, list[float]] = {}
    for tally in tallies:
        for moment, latency in zip(tally["finished_at"], tally["latencies"], strict=True):
            intervals.setdefault(int(moment / interval_seconds), []).append(latency)
    whole = int(max(tally["seconds"] for tally in tallies) / interval_seconds)
    return [
        [
            (number + 1) * interval_seconds,
            len(intervals.get(number, ())) * documents,
            _percentile(sorted(intervals.get(number, ())), 0.99),
        ]
        for number in range(whole)
    ]


def _result(
    options: Namespace,
    tallies: Sequence[dict[str, Any]],
    before: dict[str, tuple[float, int]],
    after: dict[str, tuple[float, int]],
) -> dict[str, Any]:
    latencies = sorted(one for tally in tallies for one in tally["latencies"])
    finished = len(latencies)
    parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {
        "seconds": max(tally["seconds"] for tally in tallies),
        "operations": finished,
        "measurements": finished * options.documents,
        "operations_total": sum(tally["total"] for tally in tallies),
        "errors": sum(tally["errors"] for tally in tallies),
        "first_error": next((tally["first_error"] for tally in tallies if tally["first_error"]), ""),
        "reply_documents": sum(tally["reply_documents"] for tally in tallies),
        "reply_bytes": sum(tally["reply_bytes"] for tally in tallies),
        "requests_total": sum(tally["requests"] for tally in tallies),
        "generator_cpu_seconds": sum(tally["cpu"] for tally in tallies),
        "latency_us": {
            "mean": round(sum(latencies) / max(1, finished) * 1e6, 1),
            **{name: _percentile(latencies, part) for name, part in parts.items()},
        },
        "curve": _curve(tallies, options.curve_ms / 1000, options.documents),
        "processes": {
            pid: {"cpu_seconds": after[pid][0] - cpu, "resident_bytes": after[pid][1]}
            for pid, (cpu, _) in before.items()
        },
    }


if __name__ == "__main__":
    main(sys.argv[1:])
