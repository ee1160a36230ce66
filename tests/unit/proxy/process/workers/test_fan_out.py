"""One reply of many."""

from __future__ import annotations

import pytest

from catalog.errors import CommandError
from proxy.process.workers.fan_out import NotReached, merged

FAILED = CommandError(117, "not now")
HANGS = NotReached(1, 4711, "no answer")


def test_numbers_are_added_and_the_rest_is_that_of_the_first() -> None:
    replies = [{"state": "paused", "running": 1, "held": 2}, {"state": "paused", "running": 3, "held": 0}]
    assert merged(replies, any_suffices=False) == {"state": "paused", "running": 4, "held": 2}


def test_an_error_of_one_is_that_of_all_unless_one_suffices() -> None:
    with pytest.raises(CommandError, match="not now"):
        merged([{"killed": 1}, FAILED], any_suffices=False)
    assert merged([FAILED, {"killed": 1}], any_suffices=True) == {"killed": 1}
    with pytest.raises(CommandError, match="not now"):
        merged([FAILED, FAILED], any_suffices=True)


def test_those_that_were_not_reached_are_named() -> None:
    reply = merged([{"state": "paused", "running": 1}, HANGS], any_suffices=False)
    assert reply == {
        "state": "paused",
        "running": 1,
        "notReached": [{"worker": 1, "pid": 4711, "reason": "no answer"}],
    }
    with pytest.raises(CommandError, match="worker 1 does not answer: no answer"):
        merged([HANGS], any_suffices=False)


def test_where_one_suffices_it_may_be_the_one_that_was_not_reached() -> None:
    with pytest.raises(CommandError, match="worker 1 does not answer"):
        merged([FAILED, HANGS], any_suffices=True)
    with pytest.raises(CommandError, match="not now"):
        merged([FAILED, HANGS], any_suffices=False)


def test_without_workers_there_is_no_reply() -> None:
    with pytest.raises(CommandError, match="no worker"):
        merged([], any_suffices=True)
