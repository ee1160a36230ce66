from __future__ import annotations

import pytest

from proxy.clients.admission import HANDSHAKES_AT_ONCE, Admission
from proxy.observe.metrics import ConnectionNumbers
from proxy.settings.table import Settings
from proxy.upstream.file_limit import clients_within, file_limit


class Handshake:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


def admission(**settings: int) -> Admission:
    return Admission(Settings(**settings), ConnectionNumbers())  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_address"])
def test_handshakes_count_as_connections(limit: str) -> None:
    door = admission(**{limit: 2})
    handshake = Handshake()
    door.begin("a", handshake)
    door.entered("a")
    assert door.refuses("a")
    assert door.refuses("b") == (limit == "max_connections")
    door.end("a", handshake)
    assert not door.refuses("a")
    door.left("a")
    door.left("a")


def test_too_many_handshakes_of_one_address_keep_no_other_out() -> None:
    door = admission()
    honest = Handshake()
    flood = [Handshake() for _ in range(HANDSHAKES_AT_ONCE + 100)]
    door.begin("honest", honest)
    for handshake in flood:
        door.begin("flood", handshake)
    assert not honest.is_cancelled
    assert [handshake.is_cancelled for handshake in flood] == [True] * 101 + [False] * (HANDSHAKES_AT_ONCE - 1)
    for handshake in (honest, *flood):
        door.end("honest" if handshake is honest else "flood", handshake)
    for _ in range(HANDSHAKES_AT_ONCE):
        door.begin("flood", honest)
        door.end("flood", honest)
    assert not honest.is_cancelled


def test_connections_are_rejected_that_would_leave_too_few_files() -> None:
    limit = file_limit()
    door = Admission(Settings(), ConnectionNumbers(), leaves_files=True)
    assert not door.refuses("a", 10)
    assert door.refuses("a", limit - 1)
    door = Admission(Settings(max_connections=limit), ConnectionNumbers(), leaves_files=True)
    for _ in range(clients_within(limit)):
        assert not door.refuses("a", 10)
        door.entered("a")
    assert door.refuses("a", 10)
    assert not admission().refuses("a", limit - 1)
