"""How long a hold lasts."""

from __future__ import annotations

from catalog.growth.back_off import BackOff


def lasted(hold: BackOff, now_seconds: float) -> float:
    hold.begin(now_seconds)
    hold.begin(now_seconds + 1)
    return next(float(seconds) for seconds in range(100) if not hold.is_on(now_seconds + seconds))


def test_it_lasts_longer_while_it_begins_again_soon() -> None:
    hold, now_seconds, seconds = BackOff(5.0, 30.0), 100.0, []
    assert not hold.is_on(0.0)
    for _ in range(5):
        seconds.append(lasted(hold, now_seconds))
        now_seconds += seconds[-1] + 1
    assert seconds == [5, 10, 20, 30, 30]
    assert lasted(hold, now_seconds + 30) == 5
