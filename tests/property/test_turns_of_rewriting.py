"""No command holds the event loop: each turn of parsing, planning and encoding one takes little, whatever its size.

Processor time is measured, so that a busy machine fails no test.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from catalog.bson.codec import CODEC
from catalog.errors import CommandError
from proxy.readers.register import ReaderRegister
from proxy.reads.plan_cache import question
from proxy.request import router
from proxy.request.command import Command, parse_command
from proxy.request.session_fields import Undecodable, take_apart
from proxy.wire.message import Message
from rewrite.plan import Cursor, Dialogue, Plan, Request, Single, Step
from rewrite.profile import Profile
from rewrite.registry import REWRITERS
from tests.support.raw_wire import command
from tests.support.scopes import TARGET
from tests.support.wanted import SCALE
from tests.support.worst_commands import corners
from tests.support.yardstick import least_seconds

SIZES = (340, 690) if SCALE <= 1 else (30, 100, 340, 490, 690, 990, 2_000, 5_000, 20_000, 100_000)
LONGEST_SECONDS = 0.020
MOST_STEPS = 40
CORNERS = corners()
TRANSLATED = frozenset((*REWRITERS, "getMore"))


def planned(raw: bytes) -> Plan | None:
    """What the loop does with a message before anything is sent; ``None`` when the backend gets it as it is."""
    try:
        asked = parse_command(Message.from_bytes(raw))
    except CommandError:
        return None
    route = router.route(asked, lambda _: TARGET, TRANSLATED, lambda _: True)
    look_at_cursors(asked)
    if not isinstance(route, router.Translate) or asked.name not in REWRITERS:
        return None
    question(asked)
    try:
        fields = take_apart(asked.body, asked.sequences, asked.name)
        request = Request(
            name=asked.name,
            namespace=TARGET.namespace,
            body=fields.body,
            target=TARGET,
            profile=Profile(),
            has_txn_number=fields.has_txn_number,
            statement_ids=fields.statement_ids,
        )
        plan = REWRITERS[asked.name](request)
    except (Undecodable, CommandError):
        return None
    if isinstance(plan, Single | Cursor):
        for step in (plan.step, *(() if plan.otherwise is None else (plan.otherwise(),))):
            bson.encode(step.body, codec_options=CODEC)
    return plan


def look_at_cursors(asked: Command) -> None:
    """As the register of readers and the choice of a member do."""
    ReaderRegister(lambda _: False).of_relayed(asked)
    for name in ("$readPreference", "collection", "cursors"):
        asked.get(name)


def steps(plan: Dialogue) -> Iterator[float]:
    """The processor time of each turn of a dialogue with a backend that always has more to look at."""
    conversation = plan.run()
    answer: Mapping[str, Any] | None = None
    for _ in range(MOST_STEPS):
        started = time.thread_time()
        try:
            said = conversation.send(answer)  # type: ignore[arg-type]
        except (StopIteration, CommandError):
            yield time.thread_time() - started
            return
        if isinstance(said, Step):
            bson.encode(said.body, codec_options=CODEC)
        yield time.thread_time() - started
        answer = answer_to(said) if isinstance(said, Step) else {}
    conversation.close()


def answer_to(step: Step) -> Mapping[str, Any]:
    """Full pages of covered buckets for whoever looks for candidates; deletes that find them all."""
    if "aggregate" not in step.body:
        return {"ok": 1, "n": 100}
    asks_for_candidates = any("rows" in stage.get("$project", {}) for stage in step.body["pipeline"])
    time_ms = DatetimeMS(1_704_067_200_000)
    pages = [{"_id": ObjectId(), "rows": 5, "least": time_ms, "greatest": time_ms} for _ in range(100)]
    return {"ok": 1, "cursor": {"id": 0, "firstBatch": pages if asks_for_candidates and not step.raw else []}}


def longest_turn(raw: bytes) -> float:
    """In seconds of processor time."""
    started = time.thread_time()
    plan = planned(raw)
    turns = [time.thread_time() - started]
    if isinstance(plan, Dialogue):
        turns += steps(plan)
    return max(turns)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", SIZES)
def test_no_turn_is_long(size: int) -> None:
    too_long = {}
    for name, grow in CORNERS.items():
        raw = command({**grow(size), "$db": "db"})
        if len(raw) > 48_000_000:
            continue
        seconds = least_seconds(partial(longest_turn, raw), LONGEST_SECONDS)
        if seconds >= LONGEST_SECONDS:
            too_long[name] = round(seconds * 1000)
    assert not too_long
