"""What the report of a fuzz run says, and when a run fails."""

from __future__ import annotations

from collections import Counter

from tests.fuzz.report import ALONE, ATTACKED, Report, verdict


def _round(
    *,
    guarded: bool,
    attacked_seconds: float = 0.002,
    native_seconds: float = 0.001,
    hello_seconds: float = 0.001,
    count: int = 1000,
    **more: object,
) -> Report:
    report = Report(
        guarded,
        waits={ALONE: [0.001] * count, ATTACKED: [attacked_seconds] * count},
        natively={ATTACKED: [native_seconds] * count},
        hellos={ATTACKED: [hello_seconds] * count},
        memory_bytes=300 << 20,
        requests=Counter(damaged=5),
    )
    for name, value in more.items():
        setattr(report, name, value)
    return report


def test_figures_of_each_arena_are_told() -> None:
    told = verdict([_round(guarded=False), _round(guarded=True, attacked_seconds=0.0025), _round(guarded=False)])
    off, on = told.text.split("=== ")[1:]
    assert told.passed
    assert "2 rounds" in off
    assert "p99 under attack to p99 alone: 2.0, at most 3" in off
    assert "p99 under attack to p99 alone: 2.5, at most 3" in on
    assert "memory of the proxy: 300 MB" in on
    assert "messages: 10 damaged" in off
    assert "violations: 0" in off


def test_one_arena_too_slow_fails_the_run() -> None:
    told = verdict([_round(guarded=False), _round(guarded=True, attacked_seconds=0.004)])
    assert not told.passed
    assert told.text.count("BROKEN") == 1
    assert verdict([_round(guarded=False), _round(guarded=True, attacked_seconds=0.004)], judge_waits=False).passed


def test_where_clients_past_the_proxy_wait_as_long_the_run_passes() -> None:
    slow = {"guarded": True, "attacked_seconds": 0.03}
    assert verdict([_round(guarded=False), _round(**slow, native_seconds=0.021)]).passed
    assert not verdict([_round(guarded=False), _round(**slow, native_seconds=0.019)]).passed
    assert not verdict([_round(guarded=False), _round(**slow, natively={})]).passed


def test_the_proxys_own_answers_are_prompt_whatever_the_backend_does() -> None:
    assert not verdict([_round(guarded=False), _round(guarded=True, hello_seconds=0.021)]).passed
    assert not verdict([_round(guarded=False), _round(guarded=True, hellos={})]).passed


def test_one_odd_round_does_not_fail_an_hour() -> None:
    odd = _round(guarded=True, attacked_seconds=1.0, count=100)
    assert verdict([_round(guarded=False), odd, *(_round(guarded=True) for _ in range(15))]).passed
    assert not verdict([_round(guarded=False), odd, *(_round(guarded=True) for _ in range(5))]).passed


def test_a_violation_fails_the_run() -> None:
    broken = _round(guarded=True, failures=["lost: 1"])
    told = verdict([_round(guarded=False), broken])
    assert not told.passed
    assert "1 violations: FAILED" in told.text
    assert "VIOLATION: lost: 1" in broken.text()


def test_an_arena_without_a_round_or_without_waits_fails_the_run() -> None:
    assert not verdict([_round(guarded=False)]).passed
    assert not verdict([_round(guarded=False), Report(guarded=True)]).passed


def test_a_stopped_run_tells_what_it_knows() -> None:
    told = verdict([_round(guarded=False)], stopped_by="SIGTERM")
    assert not told.passed
    assert "stopped by SIGTERM" in told.text
    assert "inserts alone: p50 1.0" in told.text
