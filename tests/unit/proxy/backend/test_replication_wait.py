"""What becomes of stored writes whose write concern is waited for; real sets: tests/topology."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from catalog.errors import BackendUnavailable
from catalog.namespaces import Namespace
from catalog.ports import Acknowledgement
from proxy.backend import replication_wait
from proxy.backend.replication_wait import TRIALS, WAVES, Attempt, Concern, ReplicationWait, term_of
from tests.support.replication_waits import Client, Waits

NAMESPACE = Namespace("d", "ts")
TIMED_OUT = {"code": 64, "errmsg": "waiting", "errInfo": {"wtimeout": True, "writeConcern": {"w": 2, "wtimeout": 1}}}


def stored(concern: Concern, term: object = 1, seconds: float | None = None) -> tuple[ReplicationWait, Client]:
    now_seconds = asyncio.get_running_loop().time()
    since_seconds = now_seconds if seconds is None else now_seconds + seconds - 5
    wait = ReplicationWait(
        {"w": 2, "wtimeout": 5_000, "provenance": "clientSupplied"}, term, {"opTime": 1}, since_seconds
    )
    concern.wait(NAMESPACE, wait)
    return wait, Client(wait)


async def settled(*waits: ReplicationWait) -> None:
    while not all(wait.is_over for wait in waits):  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_what_is_stored_before_is_confirmed_together() -> None:
    waits = Waits()
    concern = Concern(waits, {"w": 2})
    pairs = [stored(concern) for _ in range(50)]
    await waits.answer(0)
    await settled(*(wait for wait, _ in pairs))
    assert len(waits.asked) == 1
    assert waits.asked[0][0]["delete"] == "ts"
    assert waits.asked[0][0]["writeConcern"] == {"w": 2}
    assert all(client.heard == [Acknowledgement(None, {"opTime": 1})] for _, client in pairs)
    late = Client(pairs[0][0])
    assert late.heard == pairs[0][1].heard
    await asyncio.gather(*waits.tasks)
    assert not concern.is_waited_for


async def test_few_commands_wait_however_many_clients_do() -> None:
    waits = Waits()
    concern = Concern(waits, {"w": 2})
    for _ in range(30):
        stored(concern)
        await asyncio.sleep(replication_wait.WAVE_PAUSE_SECONDS / 3)
    assert 1 < len(waits.asked) <= WAVES
    for task in waits.tasks:
        task.cancel()


async def test_another_primary_confirms_nothing() -> None:
    waits = Waits()
    wait, client = stored(Concern(waits, {"w": 2}), term=7)
    await waits.answer(0)
    await settled(wait)
    (outcome,) = client.heard
    assert isinstance(outcome, BackendUnavailable)


async def test_a_write_concern_for_which_the_server_does_not_wait_is_met() -> None:
    """5.0 takes ``w: ""`` so, and its reply has no term."""
    waits = Waits()
    wait, client = stored(Concern(waits, {"w": ""}), term=7)
    await waits.answer(0, opTime=None)
    await settled(wait)
    assert client.heard == [Acknowledgement(None, {"opTime": 1})]


async def test_what_fails_for_a_reason_that_stays_is_told_soon_and_not_in_the_words_of_the_server() -> None:
    waits = Waits()
    waits.patience_seconds = 3_600.0
    wait, client = stored(Concern(waits, {"w": 2}))
    for attempt in range(replication_wait.MOST_REFUSALS):
        await waits.answer(attempt, ok=0.0, code=8000, errmsg="something about system.buckets")
    await asyncio.wait_for(settled(wait), 20)
    (outcome,) = client.heard
    assert isinstance(outcome, BackendUnavailable)
    assert "8000" in outcome.message
    assert "system" not in outcome.message


async def test_the_time_of_a_client_ends_in_the_words_of_the_server() -> None:
    waits = Waits()
    # Long enough for a busy machine to ask before it has passed.
    wait, client = stored(Concern(waits, {"w": 2}), seconds=0.3)
    await waits.answer(1, writeConcernError=TIMED_OUT)
    await settled(wait)
    assert waits.asked[1][0]["writeConcern"] == {"w": 2, "wtimeout": 1}
    shown = {"w": 2, "wtimeout": 5_000, "provenance": "clientSupplied"}
    error = {**TIMED_OUT, "errInfo": {"wtimeout": True, "writeConcern": shown}}
    assert client.heard == [Acknowledgement(error, {"opTime": 1})]
    await waits.answer(0)


async def test_clients_whose_time_ends_while_the_server_is_asked_share_the_next_answer() -> None:
    """A server whose secondaries lag admits few writes a second, and each question is one."""
    waits = Waits()
    concern = Concern(waits, {"w": 2})
    first, _ = stored(concern, seconds=0.1)
    later = [stored(concern, seconds=0.2) for _ in range(50)]
    while len(waits.asked) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.2)
    assert len(waits.asked) == 2
    await waits.answer(1, writeConcernError=TIMED_OUT)
    await settled(first)
    await waits.answer(2, writeConcernError=TIMED_OUT)
    await settled(*(wait for wait, _ in later))
    assert len(waits.asked) == 3
    assert all(len(client.heard) == 1 for _, client in later)
    await waits.answer(0)
    await asyncio.gather(*waits.tasks)
    assert not concern.is_waited_for


@pytest.mark.parametrize("said", [{"ok": 0.0, "code": 10107}, {"writeConcernError": {"code": 189}}], ids=str)
async def test_a_primary_that_left_is_asked_for_again_for_a_while(said: dict[str, Any]) -> None:
    waits = Waits()
    wait, client = stored(Concern(waits, {"w": 2}))
    await waits.answer(0, **said)
    await waits.answer(1)
    await settled(wait)
    assert (client.heard, waits.forgotten) == ([Acknowledgement(None, {"opTime": 1})], 1)
    wait, client = stored(Concern(waits, {"w": 2}))
    for index in range(2, 12):
        if wait.is_over:
            break
        await waits.answer(index, **said)
        await asyncio.sleep(0.06)
    await settled(wait)
    assert isinstance(client.heard[0], BackendUnavailable)


async def test_clients_that_left_hear_nothing() -> None:
    waits = Waits()
    concern = Concern(waits, {"w": 2})
    wait, client = stored(concern)
    client.gone = True
    concern.forget_gone()
    await waits.answer(0)
    await settled(wait)
    assert client.heard == []


async def test_writes_wait_themselves_while_that_is_fast_and_few_do() -> None:
    waits = Waits()
    concern = Concern(waits, {"w": 2, "j": True})
    assert concern.attempt() is Attempt.LIMITED
    concern.trials = TRIALS
    assert concern.attempt() is Attempt.JOURNALED
    concern.trials = 0
    concern.is_slow = True
    assert concern.attempt() is Attempt.JOURNALED
    wait, _ = stored(concern)
    await waits.answer(0)
    await settled(wait)
    await asyncio.gather(*waits.tasks)
    assert concern.attempt() is Attempt.LIMITED
    default = Concern(waits, None)
    default.trials = TRIALS
    assert default.attempt() is Attempt.LOCAL


async def test_who_waits_for_the_default_waits_for_what_it_is_as_soon_as_the_server_shows_it() -> None:
    waits = Waits()
    default = Concern(waits, None)
    wait = ReplicationWait({}, 1, {}, asyncio.get_running_loop().time())
    default.wait(NAMESPACE, wait)
    shown = {"w": 2, "wtimeout": 30, "provenance": "customDefault"}
    await waits.answer(0, writeConcernError={"code": 50, "errmsg": "time", "errInfo": {"writeConcern": shown}})
    await waits.answer(2, writeConcernError=TIMED_OUT)
    await settled(wait)
    assert [("writeConcern" in body, body.get("maxTimeMS")) for body, _ in waits.asked] == [
        (False, 1000), (True, None), (True, None)
    ]  # fmt: skip
    (outcome,) = Client(wait).heard
    assert isinstance(outcome, Acknowledgement)
    assert (outcome.write_concern_error or {})["errInfo"]["writeConcern"] == shown
    assert not default.is_waited_for
    assert default.attempt() is Attempt.LOCAL
    await waits.answer(1)


async def test_what_a_server_says_of_the_default_is_passed_on() -> None:
    waits = Waits()
    wait = ReplicationWait({}, 1, {}, asyncio.get_running_loop().time())
    Concern(waits, None).wait(NAMESPACE, wait)
    await waits.answer(0, writeConcernError=TIMED_OUT)
    await settled(wait)
    assert Client(wait).heard == [Acknowledgement(TIMED_OUT, {})]


def test_the_term_tells_primaries_apart() -> None:
    assert term_of({"opTime": {"ts": 1, "t": 3}, "electionId": "x"}) == 3
    assert term_of({"electionId": "x"}) == "x"
