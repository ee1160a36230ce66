"""Workers that end at once are not started in a loop."""

from __future__ import annotations

from proxy.process.workers.restart_pauses import PAUSES_SECONDS, STABLE_SECONDS, RestartPauses


def test_pauses_get_longer_until_a_worker_was_stable() -> None:
    pauses = RestartPauses()
    assert [pauses.after(1.0) for _ in PAUSES_SECONDS] == list(PAUSES_SECONDS)
    assert pauses.after(1.0) == PAUSES_SECONDS[-1]
    assert pauses.after(STABLE_SECONDS) == PAUSES_SECONDS[0]
