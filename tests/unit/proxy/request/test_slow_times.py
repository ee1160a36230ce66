from __future__ import annotations

import pytest

from catalog.ports import Acknowledgement
from proxy.request.slow_times import spent
from proxy.request.times import NOT_SENT, Times, WaitKind


def times(backend_seconds: float = 0.0, **waited: float) -> Times:
    made = Times()
    made.backend_seconds = backend_seconds
    made.waited = {WaitKind(name): seconds for name, seconds in waited.items()}
    return made


def test_a_recognised_command_is_at_the_backend_from_its_start() -> None:
    assert spent(10.0, 12.0, 0.0, None, None, is_insert=False) == {"proxy": 0.0, "backend": 2.0}


def test_a_parsed_command_is_the_proxys_until_it_is_sent() -> None:
    parts = spent(10.0, 12.0, 10.5, times(joins=0.25), None, is_insert=False)
    assert parts == {"proxy": 0.25, "backend": 1.5, "joins": 0.25}


def test_steps_are_the_backends() -> None:
    parts = spent(10.0, 12.0, NOT_SENT, times(1.25, queue=0.5), None, is_insert=False)
    assert parts == {"proxy": 0.25, "backend": 1.25, "queue": 0.5}


def test_an_insert_waits_for_its_commit() -> None:
    acknowledgement = Acknowledgement(sent_at_seconds=11.0, answered_at_seconds=11.75)
    parts = spent(10.0, 12.0, 0.0, times(queue=0.25), acknowledgement, is_insert=True)
    assert parts == {"proxy": 0.25, "backend": 0.75, "queue": 0.25, "commit": 0.75}


def test_an_insert_waits_for_its_write_concern() -> None:
    acknowledgement = Acknowledgement(sent_at_seconds=10.0, answered_at_seconds=10.5, is_confirmed=True)
    parts = spent(10.0, 12.0, 0.0, None, acknowledgement, is_insert=True)
    assert parts == {"proxy": 0.0, "backend": 0.5, "commit": 0.0, "replication": 1.5}


def test_an_insert_that_joined_a_running_commit_counts_its_own_time_only() -> None:
    acknowledgement = Acknowledgement(sent_at_seconds=1.0, answered_at_seconds=11.0)
    parts = spent(10.0, 12.0, 0.0, None, acknowledgement, is_insert=True)
    assert parts == {"proxy": 1.0, "backend": 1.0, "commit": 0.0}


@pytest.mark.parametrize("acknowledgement", [None, Acknowledgement()])
def test_a_failed_commit_is_waited_for(acknowledgement: Acknowledgement | None) -> None:
    parts = spent(10.0, 12.0, NOT_SENT, times(queue=0.5), acknowledgement, is_insert=True)
    assert parts == {"proxy": 0.0, "backend": 0.0, "queue": 0.5, "commit": 1.5}


@pytest.mark.parametrize("backend_seconds", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("queue", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("sent_seconds", [0.0, 9.0, 11.0, 13.0, NOT_SENT])
@pytest.mark.parametrize("is_insert", [False, True])
def test_parts_add_up_whatever_was_measured(
    backend_seconds: float, queue: float, sent_seconds: float, is_insert: bool
) -> None:
    acknowledgement = Acknowledgement(sent_at_seconds=sent_seconds, answered_at_seconds=11.5)
    parts = spent(10.0, 12.0, sent_seconds, times(backend_seconds, queue=queue), acknowledgement, is_insert=is_insert)
    assert sum(parts.values()) == pytest.approx(2.0)
    assert min(parts.values()) >= 0


def test_the_turn_is_neither_the_backends_nor_the_commits() -> None:
    parts = spent(10.0, 12.0, 0.0, None, None, is_insert=False, turn_seconds=0.5)
    assert parts == {"proxy": 0.0, "backend": 1.5, "turn": 0.5}
    acknowledgement = Acknowledgement(sent_at_seconds=11.0, answered_at_seconds=12.0)
    parts = spent(10.0, 12.0, 0.0, None, acknowledgement, is_insert=True, turn_seconds=0.25)
    assert parts == {"proxy": 0.0, "backend": 1.0, "turn": 0.25, "commit": 0.75}
