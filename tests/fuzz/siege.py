"""Four kinds of client at once: honest and measured, honest and heavy, hostile with a login, hostile without.

What has to hold: the proxy lives; its memory stays below ``MEMORY_BYTES``; its log tells of no error of its own; each
reply answers its request; every row that an honest client was acknowledged is stored once and bit for bit; what is
nobody's to touch stays as it was; and the measured client waits no longer than ``RATIO`` times what it waits alone (its
99th percentile).
"""

from __future__ import annotations

import base64
import multiprocessing
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pymongo

from tests.fuzz import honest
from tests.fuzz.costly import COSTLY, MALLORY, prepare
from tests.fuzz.doors import OUR_OWN_ERRORS, Broken, Door
from tests.fuzz.mutation import Fuzzer
from tests.fuzz.seeds import DATABASE as FUZZ
from tests.fuzz.stranger import STRANGE
from tests.support.access import PASSWORD, ROOT_PASSWORD, GuardedMongod
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

RATIO = 3.0
MEMORY_BYTES = 1 << 30
TIMESERIES = {"timeField": "t", "metaField": "m"}
USERS = (honest.DATABASE, honest.HEAVY, MALLORY, FUZZ)
"""Each is a user and the one database where it may do anything."""
_SPAWN = multiprocessing.get_context("spawn")
_THREADS = 2
"""Of each hostile kind."""


class Arena:
    """A replica set of one member with a proxy in front, with access control or without."""

    def __init__(self, folder: Path, *, guarded: bool) -> None:
        self.guarded = guarded
        key = folder / f"key{guarded}"
        key.write_text(base64.b64encode(os.urandom(90)).decode())
        key.chmod(0o600)
        directory = folder / f"mongod{guarded}"
        if guarded:
            self.mongod: MongodProcess = GuardedMongod(
                directory, replica_set="rs0", arguments=["--auth", "--keyFile", str(key)]
            )
        else:
            self.mongod = MongodProcess(directory, replica_set="rs0")
        self.proxy: ProxyProcess
        self._folder = folder
        self.log_position = 0
        self.resident: list[int] = []

    def start(self) -> None:
        self.mongod.start()
        backend = self.mongod.uri
        if isinstance(self.mongod, GuardedMongod):
            self.mongod.create_accounts()
            backend = self.mongod.account_uri
            for each in USERS:
                self.mongod.create_user(each, each, ["readWrite", "dbAdmin"])
        self.proxy = ProxyProcess(self._folder / f"proxy{self.guarded}", backend).start()
        with self.native().client() as client:
            for each in (*USERS, honest.WITNESS):
                client[each].create_collection("ts", timeseries=TIMESERIES)
                client[each].ts.insert_one({"t": honest.START, "m": "first", "b": -1})
                client[each].ts.delete_many({"m": "first"})

    def stop(self) -> None:
        if hasattr(self, "proxy"):
            self.proxy.stop()
        self.mongod.remove()

    def door(self, user: str) -> Door:
        """Through the proxy."""
        if not self.guarded or not user:
            return Door(self.proxy.port, self.guarded)
        return Door(self.proxy.port, True, user, PASSWORD, user)

    def root(self) -> Door:
        """Through the proxy, for whoever may do anything."""
        return Door(self.proxy.port, True, "root", ROOT_PASSWORD) if self.guarded else Door(self.proxy.port)

    def native(self) -> Door:
        """Past the proxy, for whoever may do anything."""
        return Door(self.mongod.port, True, "root", ROOT_PASSWORD) if self.guarded else Door(self.mongod.port)

    def check(self) -> None:
        """The process: alive, quiet in its log, not too large."""
        if not self.proxy.running:
            raise Broken(f"the proxy ended with {self.proxy.returncode}:\n{self.proxy.log[-6000:]}")
        with self.proxy.log_path.open(errors="replace") as file:
            file.seek(self.log_position)
            news = file.read()
            self.log_position = file.tell()
        for sign in OUR_OWN_ERRORS:
            if sign in news:
                position = news.index(sign)
                raise Broken(f"the log tells of an error of our own:\n{news[max(0, position - 500) : position + 4000]}")
        pages = int(Path(f"/proc/{self.proxy.pid}/statm").read_text().split()[1])
        self.resident.append(pages * 4096)
        if self.resident[-1] > MEMORY_BYTES:
            raise Broken(f"the proxy occupies {self.resident[-1] >> 20} MB, more than {MEMORY_BYTES >> 20}")


@dataclass
class Report:
    """One round in one arena."""

    guarded: bool
    waits: dict[int, list[float]] = field(default_factory=dict)
    natively: dict[int, list[float]] = field(default_factory=dict)
    actions: Counter[str] = field(default_factory=Counter)
    slow: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def ratio(self) -> float:
        """The measured client's 99th percentile under attack, against alone."""
        return p99(self.waits[honest.ATTACKED]) / max(p99(self.waits[honest.ALONE]), 1e-9)


def p99(waits: list[float]) -> float:
    """The 99th percentile."""
    return sorted(waits)[int(len(waits) * 0.99)] if waits else 0.0


def told(waits: list[float]) -> str:
    """In milliseconds, for people."""
    if not waits:
        return "none"
    middle, longest = sorted(waits)[len(waits) // 2] * 1000, max(waits) * 1000
    return f"p50 {middle:.1f} p99 {p99(waits) * 1000:.1f} longest {longest:.0f} ms of {len(waits)}"


class Siege:
    """One round: alone for a while, then under attack with interludes; at the end everything is looked at."""

    def __init__(self, arena: Arena, seed: int, *, heavy_rows: int = 5000) -> None:
        self._arena = arena
        self._seed = seed
        self._heavy_rows = heavy_rows
        self._report = Report(arena.guarded)
        self._phase = _SPAWN.Value("i", honest.ALONE)
        self._over = threading.Event()
        self._attack = threading.Event()

    def run(self, alone_seconds: float, attack_seconds: float, interludes: int = 1) -> Report:
        """Raises nothing for what is wrong: that is in ``failures`` of the report."""
        arena = self._arena
        door, native = arena.door, arena.native()
        own = {
            "measured": self._process(honest.measured, door(honest.DATABASE), self._seed),
            "witness": self._process(honest.witness, native, self._seed + 1),
            "heavy": self._process(honest.heavy, door(honest.HEAVY), native, self._seed, self._heavy_rows),
        }
        threads = [
            threading.Thread(target=self._act, daemon=True, args=(door(MALLORY), COSTLY, 2 * number))
            for number in range(_THREADS)
        ]
        threads += [
            threading.Thread(target=self._act, daemon=True, args=(door(""), STRANGE, 2 * number + 1))
            for number in range(_THREADS)
        ]
        threads.append(threading.Thread(target=self._damage, daemon=True))
        prepare()
        try:
            for thread in threads:
                thread.start()
            for _ in range(interludes):
                self._hold(honest.ALONE, alone_seconds / interludes)
                self._hold(honest.ATTACKED, attack_seconds / interludes)
        finally:
            self._over.set()
            self._attack.set()
            self._phase.value = honest.OVER
            for thread in threads:
                thread.join(20)
            seen = {name: self._result(name, *each) for name, each in own.items()}
        self._judge(seen)
        return self._report

    def _process(self, work: Callable[..., None], door: Door, *arguments: Any) -> tuple[Any, Connection]:
        near, far = _SPAWN.Pipe(duplex=False)
        extra = list(arguments)
        native = [extra.pop(0)] if extra and isinstance(extra[0], Door) else []
        process = _SPAWN.Process(target=work, args=(door, *native, self._phase, far, *extra), daemon=True)
        process.start()
        far.close()
        return process, near

    def _result(self, name: str, process: Any, near: Connection) -> Any:
        try:
            seen = near.recv() if near.poll(300) else None
        except EOFError:
            seen = None
        process.join(20)
        if process.is_alive():
            process.kill()
        if seen is None:
            self._report.failures.append(f"the {name} client ended with {process.exitcode} and told nothing")
        return seen

    def _hold(self, phase: int, seconds: float) -> None:
        (self._attack.set if phase == honest.ATTACKED else self._attack.clear)()
        if phase == honest.ALONE:
            time.sleep(min(3.0, seconds / 4))  # what was under way ends
        self._phase.value = phase
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._report.failures:
            time.sleep(0.25)
            try:
                self._arena.check()
            except Broken as broken:
                self._report.failures.append(str(broken))

    def _act(self, door: Door, table: tuple[Callable[[Door, random.Random], None], ...], number: int) -> None:
        chance = random.Random(f"{self._seed} {number}")
        while not self._over.is_set():
            if not self._attack.wait(1) or self._over.is_set():
                continue
            action = chance.choice(table)
            began = time.monotonic()
            try:
                action(door, chance)
                self._report.actions[action.__name__] += 1
            except Broken as broken:
                self._report.failures.append(f"{action.__name__}: {broken}")
            except TimeoutError:
                self._report.slow[action.__name__] += 1
            except (OSError, AssertionError) as error:
                # Hung up on, as may happen to who behaves so; whether the proxy lives is looked at elsewhere.
                self._report.actions[f"{action.__name__}: {type(error).__name__}"] += 1
            time.sleep(max(0.05, min(0.5, time.monotonic() - began)) * chance.random())

    def _damage(self) -> None:
        arena = self._arena
        others = (*USERS, honest.WITNESS)
        with arena.root().client(socketTimeoutMS=60_000) as client:
            fuzzer = Fuzzer(arena.proxy, self._seed, door=arena.door(FUZZ), client=client, others=others)
            try:
                while not self._over.is_set():
                    if self._attack.wait(1) and not self._over.is_set():
                        fuzzer.some(50)
            except (Broken, OSError, pymongo.errors.PyMongoError) as error:
                self._report.failures.append(f"damaged messages: {error!r}")
            finally:
                fuzzer.hang_up()
            self._report.lines.append(f"damaged: {fuzzer.outcomes}")

    def _judge(self, seen: dict[str, Any]) -> None:
        report, arena = self._report, self._arena
        try:
            arena.check()
        except Broken as broken:
            report.failures.append(str(broken))
        if (measured := seen["measured"]) is not None:
            report.waits = measured.waits
            report.failures += measured.wrong
            report.failures += [f"honest error ({count} times): {text}" for text, count in measured.errors.items()]
            with arena.native().client() as native:
                report.failures += honest.check_measured(native, measured.acknowledged)[:20]
                for each in (honest.DATABASE, honest.HEAVY):
                    names = sorted(native[each].list_collection_names())
                    if names != ["system.buckets.ts", "system.views", "ts"]:
                        report.failures.append(f"collections of {each}: {names}")
        if (witness := seen["witness"]) is not None:
            report.natively = witness.waits
        if (heavy := seen["heavy"]) is not None:
            report.failures += heavy.wrong
            report.failures += [f"heavy error ({count} times): {text}" for text, count in heavy.errors.items()]
            report.lines.append(
                f"heavy: {heavy.rows} rows, {heavy.deleted} deleted, {heavy.values} values compared, "
                f"slowest step {heavy.slowest_seconds:.1f} s"
            )
