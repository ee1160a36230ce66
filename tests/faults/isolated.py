"""A proxy that is cut off, or stands still, with statements in progress that clients send again elsewhere."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tests.support.eventually import wait_until
from tests.support.isolation import PATIENCE_SECONDS, Attempt, Isolation, all_at_once
from tests.support.isolation_load import load

WAYS: Final = {
    "auto": (),
    "in parts": ("--write-strategy", "in_parts"),
    "in place": ("--write-strategy", "in_place"),
    "native": ("--timeseries-access", "native"),
}
SESSIONS = 15
PROGRESS_SECONDS = 0.4
STANDSTILL_SECONDS = 3.0


class Kind(NamedTuple):
    """How the first proxy is cut off, and how patient it is."""

    is_silent: bool
    patience_seconds: float = PATIENCE_SECONDS


KINDS: Final = {
    "cut": Kind(is_silent=False),
    "silent": Kind(is_silent=True),
    "impatient": Kind(is_silent=False, patience_seconds=2.0),
    "silent, impatient": Kind(is_silent=True, patience_seconds=2.0),
}


def executed_meanwhile(pair: Isolation, *, is_silent: bool) -> None:
    """While the first one is isolated, the second one executes all that the first one goes on with."""
    attempts = _in_progress(pair, pair.isolate, is_silent=is_silent)
    _all_sent(attempts, pair, at_second=True)
    pair.heal()
    _goes_on(pair, attempts)


def delivered_late(pair: Isolation) -> None:
    """What the first one has sent reaches the backend when the second one has executed all of it."""
    statements = pair.next(pair.known_sessions(4 * SESSIONS))
    pair.isolate(is_silent=True)
    attempts = [Attempt(each, pair.one) for each in statements]
    time.sleep(PROGRESS_SECONDS)
    pair.wait_until_given_up()
    _all_sent(attempts, pair, at_second=True)
    pair.deliver()
    time.sleep(PROGRESS_SECONDS)
    _goes_on(pair, attempts)


def executed_by_nobody_else(pair: Isolation, *, is_silent: bool) -> None:
    """Clients that have waited get a result, or an error after which they repeat the statement."""
    attempts = _in_progress(pair, pair.isolate, is_silent=is_silent)
    pair.wait_until_given_up()
    pair.heal()
    _show_answers(attempts)
    all_at_once(lambda each=each: each.statement.repeat(pair.one) for each in attempts)
    pair.wait_until_linked()
    pair.wait_until_nothing_waits()
    pair.check()


def executed_during_a_standstill(pair: Isolation) -> None:
    """The first one has accepted statements while it had no backend, which is back when it goes on."""
    attempts = _in_progress(pair, pair.cut_off, is_silent=False)
    time.sleep(PROGRESS_SECONDS)
    pair.one.pause()
    pair.heal()

    def resume() -> None:
        time.sleep(STANDSTILL_SECONDS)
        pair.one.resume()

    all_at_once([resume, lambda: _all_sent(attempts, pair, at_second=True)])
    _goes_on(pair, attempts)


def parted_under_load(pair: Isolation, seconds: float, chance: random.Random, *, is_one_way: bool) -> None:
    """Only the proxies cannot reach one another; ``is_one_way``: the second one cannot ask the first."""
    pair.part(is_one_way=is_one_way)
    load(pair, seconds, chance)
    pair.heal()
    pair.wait_until_linked()
    pair.wait_until_nothing_waits()
    pair.check()


def parted_with_the_same_statements(pair: Isolation, rounds: int = 3, *, is_one_way: bool) -> None:
    """As before, and both get each statement at the same moment."""
    statements = pair.known_sessions(2 * SESSIONS)
    pair.part(is_one_way=is_one_way)
    for _ in range(rounds):
        statements = pair.next(statements)
        all_at_once(lambda each=each, proxy=proxy: each.repeat(proxy) for each in statements for proxy in pair.both)
    pair.heal()
    pair.wait_until_linked()
    pair.wait_until_nothing_waits()
    pair.check()


def back_and_forth(pair: Isolation, rounds: int = 3) -> None:
    """Each statement through the second one, and then again through the first one, to which its session belonged."""
    for each in (pair.one, pair.two):
        each.wait_until(lambda each=each: each.metrics()["tsproxy_peers"] == 1)
    statements = pair.known_sessions(SESSIONS)
    for _ in range(rounds):
        statements = pair.next(statements)
        all_at_once(lambda each=each: each.send(pair.two) for each in statements)
        time.sleep(1.0)
        all_at_once(lambda each=each: each.send(pair.one) for each in statements)
    pair.check()


def _in_progress(pair: Isolation, cut: Callable[..., None], *, is_silent: bool) -> list[Attempt]:
    """Statements at the first one, which is then cut off: of some the replies are lost, others it cannot send."""
    known = pair.known_sessions(2 * SESSIONS)
    sent, unsent = pair.next(known[:SESSIONS]), pair.next(known[SESSIONS:])
    pair.behind.hold_answers()
    attempts = [Attempt(each, pair.one) for each in sent]
    # Some wait for buckets that are being written.
    wait_until(lambda: pair.stored(sent) > 0)
    time.sleep(PROGRESS_SECONDS)
    print(pair.stored(sent), "rows stored without a reply")
    cut(is_silent=is_silent)
    return attempts + [Attempt(each, pair.one) for each in unsent]


def _goes_on(pair: Isolation, attempts: Sequence[Attempt]) -> None:
    """The first one, with what it had in progress; once more at both, its outcome is the same."""
    _show_answers(attempts)
    pair.wait_until_linked()
    pair.wait_until_nothing_waits()
    pair.check()
    _all_sent(attempts, pair, at_second=False)
    _all_sent(attempts, pair, at_second=True)
    pair.check()


def _all_sent(attempts: Sequence[Attempt], pair: Isolation, *, at_second: bool) -> None:
    proxy = pair.two if at_second else pair.one
    all_at_once(lambda each=each: each.statement.send(proxy) for each in attempts)


def _show_answers(attempts: Sequence[Attempt]) -> None:
    acknowledged = [each.is_acknowledged() for each in attempts]
    print(acknowledged.count(True), "of", len(acknowledged), "acknowledged by the first proxy")
