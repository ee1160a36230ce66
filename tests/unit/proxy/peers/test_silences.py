"""A process that has not answered is not waited for, for a while."""

from __future__ import annotations

from proxy.peers.silences import SILENT_SECONDS, Silences


def test_a_silence_ends() -> None:
    now_seconds = [100.0]
    silences = Silences(lambda: now_seconds[0])
    assert "a" not in silences
    silences.add("a")
    now_seconds[0] += SILENT_SECONDS / 2
    silences.add("b")
    assert "a" in silences
    now_seconds[0] += SILENT_SECONDS / 2
    assert "a" not in silences
    assert "b" in silences
