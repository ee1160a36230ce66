from __future__ import annotations

from proxy.upstream.back_pressure import BackPressure


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
