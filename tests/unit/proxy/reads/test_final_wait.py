"""Steps do not wait; the command does, once, for as long as its client is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace
from catalog.ports import Acknowledgement, Confirmation, Confirmed
from proxy.reads import final_wait
from proxy.reads.final_wait import FinalWait

NAMESPACE = Namespace("d", "ts")
ASKED = {"delete": "ts", "writeConcern": {"w": 2}}
STEP = {"update": "system.buckets.ts", "writeConcern": {"w": 2}}
DONE = {"n": 3, "ok": 1.0, "operationTime": 5}


class Waits:
    """Knows the outcome at once, or never."""

    def __init__(self, outcome: Acknowledgement | CommandError | None) -> None:
        self.outcome = outcome
        self.asked: list[Mapping[str, Any]] = []

    def of_steps(self, concern: bytes) -> Mapping[str, Any] | None:
        return {"w": 1}

    def after(
        self, concern: bytes, namespace: Namespace, reply: Mapping[str, Any], since_seconds: float
    ) -> Confirmation:
        self.asked.append(reply)
        return self

    def when_known(self, tell: Confirmed, is_gone: Callable[[], bool]) -> None:
        if self.outcome is not None:
            tell(self.outcome)


async def test_steps_ask_for_nobody_and_the_reply_has_the_outcome() -> None:
    error = {"code": 64, "errmsg": "late"}
    waits = Waits(Acknowledgement(error))
    wait = FinalWait(waits, ASKED, NAMESPACE)
    assert wait.probe is not None
    assert (wait.sent(STEP)["writeConcern"], wait.sent({"find": "x"})) == ({"w": 1}, {"find": "x"})
    assert wait.began({"ok": 1.0, "opTime": {"t": 7}})
    said = await wait.finish(DONE, lambda: False)
    assert list(said.items()) == [("n", 3), ("writeConcernError", error), ("ok", 1.0), ("operationTime", 5)]
    assert waits.asked == [{"ok": 1.0, "opTime": {"t": 7}}]


async def test_what_was_lost_is_an_error() -> None:
    """Which is no reason to close the client's connection."""
    wait = FinalWait(Waits(BackendUnavailable("lost", code=189)), ASKED, NAMESPACE)
    wait.began({"ok": 1.0})
    with pytest.raises(CommandError, match="lost") as raised:
        await wait.finish(DONE, lambda: False)
    assert (type(raised.value), raised.value.code) == (CommandError, 189)


async def test_the_default_of_the_cluster_is_waited_for_like_a_write_concern_that_is_named() -> None:
    waits = Waits(Acknowledgement())
    wait = FinalWait(waits, {"delete": "ts"}, NAMESPACE)
    assert wait.sent({"delete": "system.buckets.ts"})["writeConcern"] == {"w": 1}
    wait.began({"ok": 1.0})
    assert await wait.finish(DONE, lambda: False) == DONE
    assert waits.asked == [{"ok": 1.0}]


async def test_what_wants_no_acknowledgement_waits_for_nothing() -> None:
    waits = Waits(None)
    wait = FinalWait(waits, {"delete": "ts", "writeConcern": {"w": 0}}, NAMESPACE)
    assert (wait.probe, wait.sent(STEP)["writeConcern"]) == (None, {"w": 1})
    assert await wait.finish(DONE, lambda: False) == DONE
    assert waits.asked == []


@pytest.mark.parametrize("replication", [Waits(None), None], ids=["replica set", "standalone"])
@pytest.mark.parametrize("unusual", [{"w": 1e300}, {"w": False}, {"w": 51}, {"j": "yes"}, {"w": 0, "j": 1}], ids=str)
async def test_an_unusual_write_concern_is_judged_by_the_backend_and_waited_for_by_steps(
    unusual: Mapping[str, Any], replication: Waits | None
) -> None:
    wait = FinalWait(replication, {"delete": "ts", "writeConcern": unusual}, NAMESPACE)
    assert wait.probe is not None
    assert wait.probe["writeConcern"] == unusual
    assert not wait.began({"ok": 0.0, "code": 9})
    assert wait.began({"ok": 1.0})
    assert wait.sent(STEP) == STEP
    assert await wait.finish(DONE, lambda: False) == DONE


async def test_where_nothing_is_replicated_everything_is_as_it_was() -> None:
    wait = FinalWait(None, ASKED, NAMESPACE)
    assert (wait.probe, wait.sent(STEP), await wait.finish(DONE, lambda: False)) == (None, STEP, DONE)


async def test_who_has_left_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final_wait, "LOOK_SECONDS", 0.001)
    looks = iter([False, False, True])
    wait = FinalWait(Waits(None), ASKED, NAMESPACE)
    wait.began({"ok": 1.0})
    assert await wait.finish(DONE, lambda: next(looks)) == DONE
    assert list(looks) == []


async def test_failures_are_not_waited_for() -> None:
    failed = {"ok": 0.0, "code": 2}
    wait = FinalWait(Waits(None), ASKED, NAMESPACE)
    wait.began({"ok": 1.0})
    assert await wait.finish(failed, lambda: False) == failed
