"""How often messages about strangers are logged."""

from __future__ import annotations

import structlog
from structlog.testing import capture_logs

from proxy.observe.limited_log import MOST_IN_A_PERIOD, PERIOD_SECONDS, LimitedLog


def test_a_few_of_each_kind_and_then_how_many_were_not_logged() -> None:
    now = [0.0]
    with capture_logs() as logs:
        limited = LimitedLog(structlog.get_logger(), lambda: now[0])
        for _ in range(MOST_IN_A_PERIOD + 7):
            limited.info("login failed", peer="::1")
        limited.info("rejected")
        assert len(logs) == MOST_IN_A_PERIOD + 1
        now[0] = PERIOD_SECONDS
        limited.info("login failed")
        limited.info("rejected")
    assert [line.get("not_logged_before") for line in logs[-2:]] == [7, None]
