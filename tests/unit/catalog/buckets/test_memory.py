"""What buckets weigh, and which are known, idle and under way (W48, W82)."""

from __future__ import annotations

import datetime as dt
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import bson
import pytest

from catalog.buckets.memory import BucketMemory
from catalog.buckets.open_bucket import Bucket
from catalog.kernel.rollover import Limits
from tests.support.catalog_parts import CatalogBench, measurement
from tests.support.kernels import KERNELS

ROOT = Path(__file__).parents[4]


def some_bucket() -> Bucket:
    bucket = CatalogBench().commit(measurement()).bucket
    bucket.memory_bytes = 0
    return bucket


def test_adopted_bucket_is_counted_until_it_is_released() -> None:
    memory, bucket = BucketMemory(), some_bucket()
    memory.adopt(bucket)
    assert memory.gauges() == {
        "numBuckets": 1,
        "numOpenBuckets": 1,
        "numIdleBuckets": 0,
        "memoryUsage": bucket.memory_bytes,
    }
    assert memory.holds(bucket.state.bucket_id)
    assert memory.get(bucket.state.bucket_id) is bucket
    assert list(memory) == [bucket]
    memory.release(bucket)
    assert not any(memory.gauges().values())
    assert list(memory) == []


def test_a_bucket_of_this_process_is_found_by_its_parts_in_whatever_segment() -> None:
    memory, bucket = BucketMemory(), some_bucket()
    memory.adopt(bucket)
    own = bucket.state.bucket_id
    for part in (own[:9] + b"\0\0\7", own[:4] + b"\0\5" + own[6:9] + bytes(3)):
        assert memory.get(part) is bucket
    for other in (b"\0" + own[1:], own[:8] + b"\xff" + own[9:]):
        assert not memory.holds(other)


def test_a_bucket_of_another_process_is_found_by_its_own_id_only() -> None:
    """The ids next to it are those of others."""
    memory, made = BucketMemory(), some_bucket()
    bucket = Bucket(made.series, made.state, own=False)
    memory.adopt(bucket)
    stored_id = bucket.state.bucket_id
    assert memory.get(stored_id) is bucket
    assert not memory.holds(stored_id[:9] + b"\0\0\7")
    memory.release(bucket)
    assert list(memory) == []


def test_releasing_twice_counts_once() -> None:
    memory, bucket = BucketMemory(), some_bucket()
    memory.adopt(bucket)
    memory.release(bucket)
    memory.release(bucket)
    assert memory.count == 0


def test_released_bucket_stays_held_while_a_batch_is_under_way() -> None:
    bench = CatalogBench()
    (batch,) = bench.stage(measurement())
    bucket, memory = batch.bucket, BucketMemory()
    memory.adopt(bucket)
    batch.claim()
    bench.catalog.prepare(batch)
    memory.release(bucket)
    assert memory.holds(bucket.state.bucket_id)
    assert memory.count == 0
    bucket.prepared = None
    memory.forget_ended(bucket)
    assert not memory.holds(bucket.state.bucket_id)


def test_longest_idle_bucket_comes_first_and_a_woken_one_is_not_idle() -> None:
    memory = BucketMemory()
    first, second = some_bucket(), some_bucket()
    for bucket in (first, second):
        memory.adopt(bucket)
        memory.rest(bucket)
    assert memory.longest_idle() is first
    memory.wake(first)
    assert memory.longest_idle() is second
    memory.wake(second)
    assert memory.longest_idle() is None


def test_bucket_is_weighed_when_it_comes_to_rest() -> None:
    """W82"""
    bench = CatalogBench()
    before = bench.catalog.gauges()["memoryUsage"]
    bench.commit(measurement())
    after_one = bench.catalog.gauges()["memoryUsage"]
    bench.commit(measurement(1, **{f"field{number}": number for number in range(50)}))
    assert before < after_one < bench.catalog.gauges()["memoryUsage"]


OPEN_SERIES = """
import resource
from tests.support.catalog_parts import CatalogBench, measurement

def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

bench = CatalogBench()
bench.commit(measurement())
before = peak_bytes()
for device in range(10_000):
    bench.commit(measurement(meta=f"device-{device:05}", a=1.5, b=device, c="some text of this", d=True))
print(peak_bytes() - before, bench.catalog.gauges()["numOpenBuckets"])
"""


@pytest.mark.parametrize("kernel", ["", "python"], ids=["chosen", "interpreted"])
def test_ten_thousand_open_series_take_less_than_200_megabytes(kernel: str) -> None:
    """Measured from outside, in a process of its own: what the system gave it."""
    environment = {**os.environ, "TSPROXY_KERNEL": kernel, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", OPEN_SERIES], env=environment, capture_output=True, text=True, check=True, cwd=ROOT
    )
    taken_bytes, open_buckets = map(int, run.stdout.split())
    assert open_buckets == 10_001
    assert taken_bytes < 200 * 1024 * 1024


NESTED: dict[str, Callable[[int], Any]] = {
    "object": lambda number: {f"f{index}": number + index for index in range(1000)},
    "array": lambda number: [number + index for index in range(1000)],
    "objects": lambda number: [{"a": number} for _ in range(500)],
    "nothing": lambda number: [{} for _ in range(500)],
    "deep": lambda number: reduce(lambda inner, _: {"a": inner}, range(90), {"a": number}),
    "text": lambda number: {f"f{index}": "x" * 100 + str(number) for index in range(100)},
}


@pytest.mark.parametrize("form", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("late", [False, True])
def test_nested_values_count_with_what_they_take(form: Any, kind: str, late: bool) -> None:
    """``late``: what a bucket opened with says little of what comes into it."""

    def documents(number: int) -> list[bytes]:
        value = NESTED[kind](number)
        first: Any = ([] if isinstance(value, list) else {}) if late else value
        times = (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC))
        return [bson.encode({"t": t, "m": 1, "n": each}) for t, each in zip(times, (first, value), strict=True)]

    kept = []
    gc.collect()
    before = Path("/proc/self/statm").read_text().split()[1]
    for number in range(60):
        state = form.BucketState(number.to_bytes(12, "big"), b"t", b"m", b"\x10\1\0\0\0", 0, 3_600_000, Limits())
        measurements = [form.parse_measurement(document, b"t", b"m") for document in documents(number)]
        assert not any(state.try_stage(each) for each in measurements)
        state.prepare(measurements)
        kept.append(state)
    del measurements
    gc.collect()
    used = (int(Path("/proc/self/statm").read_text().split()[1]) - int(before)) * 4096
    assert used < 1.4 * sum(state.memory_bytes() for state in kept) + (1 << 20)
