"""What buckets weigh, and which are known, idle and under way (W48, W82)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.memory import BucketMemory
from catalog.open_bucket import Bucket
from tests.support.catalog_parts import CatalogBench, measurement

ROOT = Path(__file__).parents[3]


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


def test_releasing_twice_counts_once() -> None:
    memory, bucket = BucketMemory(), some_bucket()
    memory.adopt(bucket)
    memory.release(bucket)
    memory.release(bucket)
    assert memory.count == 0


def test_released_bucket_stays_held_while_a_batch_is_under_way() -> None:
    bench = CatalogBench()
    (batch,) = bench.stage(measurement())
    bucket, memory = batch.bucket, bench.catalog._memory
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
