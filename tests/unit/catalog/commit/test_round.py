"""Which prepared batches leave together (W64)."""

from __future__ import annotations

from bson import Timestamp

from catalog.buckets.write_batch import WriteBatch
from catalog.commit.empty_timestamps import has_empty_timestamp
from catalog.commit.round import Round, RoundLimits
from tests.support.catalog_parts import CatalogBench, RememberingWriter, measurement


def claimed(bench: CatalogBench, *metas: object) -> list[WriteBatch]:
    batches = bench.stage(*(measurement(meta=meta) for meta in metas))
    for batch in batches:
        batch.claim()
    return batches


def test_new_and_grown_buckets_leave_in_two_commands() -> None:
    bench = CatalogBench()
    bench.commit(measurement(meta="old"))
    round_, left = Round.of(bench.catalog, claimed(bench, "old", "new", "newer"), RoundLimits())
    assert (len(round_.inserts), len(round_.updates), left) == (2, 1, [])
    assert len(round_.writes) == 3


def test_w37_buckets_with_an_empty_timestamp_leave_in_a_command_of_their_own() -> None:
    bench = CatalogBench()
    bench.commit(measurement(meta="old"))
    metas = ["old", Timestamp(0, 0), "new", Timestamp(0, 1), {"a": Timestamp(0, 0)}]
    round_, _ = Round.of(bench.catalog, claimed(bench, *metas), RoundLimits())
    assert [len(writes) for writes in round_.commands] == [3, 1, 1]
    assert [has_empty_timestamp(write.statement) for write in round_.inserts + round_.upserts] == [False] * 3 + [True]
    assert len(round_.writes) == 5


def test_round_is_bounded_by_statements_and_bytes() -> None:
    bench = CatalogBench()
    batches = claimed(bench, *range(5))
    round_, left = Round.of(bench.catalog, batches, RoundLimits(statements=2))
    assert (len(round_.writes), left) == (2, batches[2:])
    round_, left = Round.of(bench.catalog, left, RoundLimits(size_bytes=1))
    assert (len(round_.writes), left) == (1, batches[3:])


def test_batch_that_moved_or_waits_is_in_no_round() -> None:
    bench = CatalogBench()
    first = claimed(bench, "a")
    Round.of(bench.catalog, first, RoundLimits())
    second = claimed(bench, "a")
    moved = claimed(bench, "b")
    bench.catalog.clear(bench.virtual.namespace, [moved[0].bucket.state.bucket_id])
    round_, left = Round.of(bench.catalog, second + moved, RoundLimits())
    assert (round_.writes, left) == ([], [])
    assert second[0].bucket.waiting == second


def test_bucket_that_cannot_be_prepared_costs_its_writers_and_no_others() -> None:
    """Our bug must not stop the others."""
    bench = CatalogBench()
    writer = RememberingWriter()
    (broken,) = bench.stage(measurement(meta="broken"), writer=writer)
    broken.claim()
    broken.measurements.append(measurement(1, meta="broken"))  # never staged
    round_, left = Round.of(bench.catalog, [broken, *claimed(bench, "whole")], RoundLimits())
    assert len(round_.failures) == 1
    assert writer.codes == {0: 1}
    assert (len(round_.writes), left) == (1, [])
    assert bench.open_buckets == 1
