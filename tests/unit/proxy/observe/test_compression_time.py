"""The time of compression is summed over threads, also of attempts that fail."""

from __future__ import annotations

import threading
import time

import pytest

from proxy.observe.compression_time import Spent, TimedForms


def busy(document: bytes, time_field: bytes) -> bytes | None:
    until_seconds = time.thread_time() + 0.01
    while time.thread_time() < until_seconds:
        pass
    if document == b"bad":
        raise ValueError("no bucket")
    return None


def test_cpu_time_of_all_threads_is_added() -> None:
    forms = TimedForms(lambda _: None, busy)
    threads = [threading.Thread(target=forms.compressed, args=(b"", b"t")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert forms.spent.seconds == pytest.approx(0.03, rel=0.5)
    before_seconds = forms.spent.seconds
    with pytest.raises(ValueError):
        forms.compressed(b"bad", b"t")
    assert forms.spent.seconds >= before_seconds + 0.01


def test_time_without_work_does_not_count() -> None:
    spent = Spent()
    spent.add(0.5)
    spent.add(0.25)
    assert spent.seconds == 0.75
