from __future__ import annotations

from proxy.upstream.back_pressure import AHEAD_BYTES, AHEAD_COMMANDS, BackPressure


def test_who_waits_is_told_once() -> None:
    connection, told = BackPressure(), []
    connection.pause_writing()
    assert connection.takes_no_more
    connection.when_writable(lambda: told.append("writable"))
    assert not told
    connection.resume_writing()
    connection.resume_writing()
    assert told == ["writable"]
    assert not connection.takes_no_more


def test_a_reply_is_due_after_so_many_commands_or_bytes() -> None:
    for size_bytes, count in ((100, AHEAD_COMMANDS), (AHEAD_BYTES // 4, 4)):
        connection = BackPressure()
        for _ in range(count):
            assert not connection.is_ahead
            connection.sent_ahead(size_bytes)
        assert connection.is_ahead
        connection.asked_for_reply()
        assert not connection.is_ahead
