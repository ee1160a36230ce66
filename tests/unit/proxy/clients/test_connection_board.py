"""Processes see how many connections the others have."""

from __future__ import annotations

import os

from proxy.clients.connection_board import ConnectionBoard, leave_board, make_board


def test_the_one_with_most_connections_gives_way() -> None:
    descriptor = make_board()
    first, second = ConnectionBoard(descriptor, 0), ConnectionBoard(descriptor, 63)
    first.publish(3)
    assert not first.is_busiest()
    second.publish(2)
    assert first.is_busiest()
    assert not second.is_busiest()
    second.publish(3)
    assert not first.is_busiest()
    os.close(descriptor)


def test_who_accepts_no_more_does_not_count() -> None:
    descriptor = make_board()
    first, second = ConnectionBoard(descriptor, 0), ConnectionBoard(descriptor, 1)
    first.publish(3)
    second.publish(0)
    assert first.is_busiest()
    leave_board(descriptor, 1)
    assert not first.is_busiest()
    os.close(descriptor)
