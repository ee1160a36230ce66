"""Four kinds of client at once: honest and measured, honest and heavy, hostile with a login, hostile without.

What has to hold: the proxy lives; its memory stays below ``MEMORY_BYTES``; its log tells of no error of its own; each
reply answers its request; every row that an honest client was acknowledged is stored once and bit for bit; what is
nobody's to touch stays as it was; and the measured client waits no longer than bounds that ``tests.fuzz.report`` names
and judges over all rounds.
"""

from __future__ import annotations

import base64
import multiprocessing
import os
import random
import resource
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pymongo

from tests.fuzz import honest
from tests.fuzz.costly import COSTLY, MALLORY
from tests.fuzz.doors import OUR_OWN_ERRORS, Broken, Door
from tests.fuzz.mutation import OTHERS_SECONDS, Fuzzer
from tests.fuzz.report import ALONE, ATTACKED, Report
from tests.fuzz.seeds import DATABASE as FUZZ
from tests.fuzz.stranger import STRANGE, prepare
from tests.support.access import PASSWORD, ROOT_PASSWORD, GuardedMongod
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

MEMORY_BYTES = 1 << 30
TIMESERIES = {"timeField": "t", "metaField": "m"}
USERS = (honest.DATABASE, honest.HEAVY, MALLORY, FUZZ)
"""Each is a user and the one database where it may do anything."""
_SPAWN = multiprocessing.get_context("spawn")
_THREADS = 2
"""Of each hostile kind."""
_END_SECONDS = 90.0
"""Within this time hostile clients give up what they wait for."""
_RESULT_SECONDS = 300.0
_CURSOR_SECONDS = 10.0
_CALM_SECONDS = 40.0
_STOPPED_SECONDS = 10.0
"""So long a round that a signal ends waits for what its clients saw."""


class Arena:
    """A replica set of one member with a proxy in front, with access control or without."""

    def __init__(self, folder: Path, *, guarded: bool) -> None:
        self.guarded = guarded
        key = folder / f"key{guarded}"
        key.write_text(base64.b64encode(os.urandom(90)).decode())
        key.chmod(0o600)
        directory = folder / f"mongod{guarded}"
        # Cursors that hostile clients leave open hold a bucket each, by default for ten minutes.
        arguments = ["--setParameter", f"cursorTimeoutMillis={int(_CURSOR_SECONDS * 1000)}"]
        if guarded:
            self.mongod: MongodProcess = GuardedMongod(
                directory, replica_set="rs0", arguments=[*arguments, "--auth", "--keyFile", str(key)]
            )
        else:
            self.mongod = MongodProcess(directory, replica_set="rs0", arguments=arguments)
        self.proxy: ProxyProcess
        self._folder = folder
        self.log_position = 0
        self.resident_bytes = 0
        """The most that the proxy occupied."""
        self.server_bytes = 0
        """The most that mongod occupied."""

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

    def clear_hostile(self) -> None:
        """Empty what hostile clients filled, so that their commands cost the server no more from round to round."""
        with self.native().client() as client:
            client[MALLORY].drop_collection("ts")
            client[MALLORY].create_collection("ts", timeseries=TIMESERIES)

    def calm(self) -> None:
        """Wait for what is under way in mongod, so that who is measured alone is alone; hostile clients' is ended.

        Not everything can be interrupted; what goes on for longer than ``_CALM_SECONDS`` is left.
        """
        end = time.monotonic() + _CALM_SECONDS
        under_way = {"active": True, "ns": {"$regex": f"^({MALLORY}|{FUZZ}|{honest.HEAVY})\\."}}
        with self.native().client() as client:
            while time.monotonic() < end:
                operations = list(client.admin.aggregate([{"$currentOp": {"allUsers": True}}, {"$match": under_way}]))
                if not operations:
                    return
                for each in operations:
                    if not each["ns"].startswith(f"{honest.HEAVY}."):
                        client.admin.command("killOp", op=each["opid"])
                time.sleep(0.5)

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
        if not self.mongod.running:
            raise Broken(f"mongod ended with {self.mongod.returncode}; it occupied {self.server_bytes >> 20} MB")
        self.resident_bytes = max(self.resident_bytes, _resident_bytes(self.proxy.pid))
        self.server_bytes = max(self.server_bytes, _resident_bytes(self.mongod.pid))
        if self.resident_bytes > MEMORY_BYTES:
            raise Broken(f"the proxy occupies {self.resident_bytes >> 20} MB, more than {MEMORY_BYTES >> 20}")

    def counted(self) -> tuple[int, int]:
        """The requests that the proxy handled so far, and the internal errors that it counted."""
        metrics = self.proxy.metrics()
        requests = sum(value for name, value in metrics.items() if name.startswith("tsproxy_requests_total"))
        return int(requests), int(metrics["tsproxy_invariant_violations_total"])


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


class Siege:
    """One round: alone for a while, then under attack with interludes; at the end everything is looked at."""

    def __init__(
        self,
        arena: Arena,
        seed: int,
        *,
        heavy_rows: int = 1000,
        judge_waits: bool = True,
        stop: threading.Event | None = None,
    ) -> None:
        """``stop`` ends the round early: what is known by then is told, and nothing is waited for."""
        self._arena = arena
        self._seed = seed
        self._heavy_rows = heavy_rows
        self._others_seconds = OTHERS_SECONDS if judge_waits else 60.0
        self._stop = stop or threading.Event()
        self._report = Report(arena.guarded, seed)
        self._phase = _SPAWN.Value("i", ALONE)
        self._over = threading.Event()
        self._attack = threading.Event()
        self._prepared = threading.Event()
        """Set once the sender of damaged messages has its collections: ``calm`` ends what is under way there."""

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
        arena.clear_hostile()
        requests, _ = arena.counted()
        try:
            for thread in threads:
                thread.start()
            for _ in range(interludes):
                self._hold(ALONE, alone_seconds / interludes)
                self._hold(ATTACKED, attack_seconds / interludes)
        finally:
            self._over.set()
            self._attack.set()
            self._phase.value = honest.OVER
            end = time.monotonic() + (_STOPPED_SECONDS if self._stop.is_set() else _END_SECONDS)
            seen = {name: self._result(name, *each) for name, each in own.items()}
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
        if not self._stop.is_set():
            self._arena.calm()
        self._judge(seen)
        self._count(requests)
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
        end = time.monotonic() + _RESULT_SECONDS
        stopped_end = time.monotonic() + _STOPPED_SECONDS
        seen = None
        with suppress(EOFError):
            while not near.poll(0.25) and time.monotonic() < (stopped_end if self._stop.is_set() else end):
                pass
            seen = near.recv() if near.poll(0) else None
        process.join(20 if seen is not None else 0)
        if process.is_alive():
            process.kill()
            process.join()
        if seen is None and self._stop.is_set():
            self._report.lines.append(f"the {name} client was not waited for")
        elif seen is None:
            self._report.failures.append(f"the {name} client ended with {process.exitcode} and told nothing")
        return seen

    def _hold(self, phase: int, seconds: float) -> None:
        (self._attack.set if phase == ATTACKED else self._attack.clear)()
        if phase == ALONE:
            self._phase.value = honest.BETWEEN
            self._stop.wait(min(3.0, seconds / 4))
            self._prepared.wait(_CALM_SECONDS)
            self._arena.calm()
        self._phase.value = phase
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._report.failures and not self._stop.wait(0.25):
            try:
                self._arena.check()
            except Broken as broken:
                self._report.failures.append(str(broken))

    def _act(self, door: Door, table: tuple[Callable[[Door, random.Random], None], ...], number: int) -> None:
        os.nice(honest.NICENESS)
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
        os.nice(honest.NICENESS)
        try:
            with self._arena.root().client(socketTimeoutMS=60_000) as client:
                self._damage_as(client)
        except (Broken, OSError, pymongo.errors.PyMongoError) as error:
            # On a slow machine, the server may be stopped before this thread has begun.
            if not self._over.is_set():
                self._report.failures.append(f"damaged messages: {error!r}")
        finally:
            self._prepared.set()

    def _damage_as(self, client: pymongo.MongoClient[Any]) -> None:
        arena = self._arena
        fuzzer = Fuzzer(
            arena.proxy,
            self._seed,
            door=arena.door(FUZZ),
            client=client,
            others=(*USERS, honest.WITNESS),
            others_seconds=self._others_seconds,
        )
        self._prepared.set()
        try:
            while not self._over.is_set():
                if self._attack.wait(1) and not self._over.is_set():
                    fuzzer.some(50, self._over.is_set)
        finally:
            fuzzer.hang_up()
            self._report.requests["damaged"] += fuzzer.outcomes.sent
            self._report.lines.append(f"damaged: {fuzzer.outcomes}")

    def _judge(self, seen: dict[str, Any]) -> None:
        report, arena = self._report, self._arena
        try:
            arena.check()
        except Broken as broken:
            report.failures.append(str(broken))
        if (measured := seen["measured"]) is not None:
            report.waits, report.finds, report.hellos = measured.waits, measured.finds, measured.hellos
            report.requests["honest inserts"] = sum(map(len, measured.waits.values()))
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
            longest = ", ".join(
                f"{count} of {kind} (longest {heavy.longest[kind]:.1f} s)" for kind, count in heavy.steps.items()
            )
            report.lines.append(
                f"heavy: {heavy.rows} rows, {heavy.deleted} deleted, {heavy.values} values compared, steps: {longest}"
            )
            report.lines += [f"heavy, slow step: {each}" for each in heavy.slow]

    def _count(self, requests_before: int) -> None:
        report, arena = self._report, self._arena
        report.memory_bytes, report.server_bytes = arena.resident_bytes, arena.server_bytes
        report.complete = not self._stop.is_set()
        if not arena.proxy.running:
            return
        requests, violations = arena.counted()
        report.requests["handled by the proxy"] = requests - requests_before
        if violations:
            report.failures.append(f"the proxy counts {violations} internal errors:\n{arena.proxy.log[-6000:]}")
