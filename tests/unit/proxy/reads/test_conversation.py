from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Mapping
from typing import Any

import bson
import pytest

from proxy.reads.conversation import LARGE_BYTES, Conversation
from proxy.request.step_places import StepPlaces
from proxy.request.times import Times
from rewrite.plan import Document, Effect, PassThrough, Pause, Step

STEP = Step("db", {"ping": 1})
OWNER = "somebody"


def dialogue(threads: list[bool]) -> Generator[Step | Effect | Pause, Mapping[str, Any], Document | PassThrough]:
    total = 0
    for _ in range(3):
        answer = yield STEP
        threads.append(threading.current_thread() is threading.main_thread())
        total += answer["n"]
    if total > 100:
        raise ValueError("too much")
    return {"n": total}


def reply(number: int, size_bytes: int = 0) -> bytes:
    return bson.encode({"n": number, "text": "v" * size_bytes})


async def test_a_dialogue_goes_on_in_a_thread_once_a_reply_was_large() -> None:
    threads: list[bool] = []
    talk = Conversation(dialogue(threads), StepPlaces(), OWNER, Times())
    assert await talk.begin() is STEP
    assert await talk.go_on(reply(1)) is STEP
    assert await talk.go_on(reply(2, LARGE_BYTES)) is STEP
    assert await talk.go_on(reply(3), raw=True) is None
    assert talk.result == {"n": 6}
    assert threads == [True, False, False]


@pytest.mark.parametrize("size_bytes", [0, LARGE_BYTES])
async def test_errors_of_a_dialogue_are_told(size_bytes: int) -> None:
    talk = Conversation(dialogue([]), StepPlaces(), OWNER, Times())
    await talk.begin()
    await talk.go_on(reply(1000, size_bytes))
    await talk.go_on(reply(1))
    with pytest.raises(ValueError, match="too much"):
        await talk.go_on(reply(1))
    talk.close()


async def test_many_dialogues_of_one_client_do_not_keep_another_from_the_thread() -> None:
    turns = StepPlaces(1)
    done: list[str] = []

    def work(owner: str) -> Generator[Step, Mapping[str, Any], Document]:
        yield STEP
        time.sleep(0.005)
        done.append(owner)
        return {}

    talks = [Conversation(work(owner), turns, owner, Times()) for owner in ("many",) * 20 + ("few",)]
    for talk in talks:
        assert await talk.begin() is STEP
    await asyncio.gather(*(talk.go_on(reply(1, LARGE_BYTES)) for talk in talks))
    assert done.index("few") <= 2
