"""Write batches: the table of their states, commit rights, and who is told what (W60-W66)."""

from __future__ import annotations

import pytest

from catalog.buckets.write_batch import TRANSITIONS, BatchEvent, BatchState
from catalog.errors import CommandError, InvariantViolated
from tests.support.catalog_parts import ACKNOWLEDGED, CatalogBench, Patient, RememberingWriter, measurement


def test_table_names_every_state() -> None:
    assert set(TRANSITIONS) == set(BatchState)


@pytest.mark.parametrize("state", BatchState)
@pytest.mark.parametrize("event", BatchEvent)
def test_what_the_table_does_not_hold_is_a_bug(state: BatchState, event: BatchEvent) -> None:
    (batch,) = CatalogBench().stage(measurement())
    batch.state = state
    target = TRANSITIONS[state].get(event)
    if target is None:
        with pytest.raises(InvariantViolated, match=state.name):
            batch.advance(event)
        assert batch.state is state
    else:
        batch.advance(event)
        assert batch.state is target


def test_only_the_first_who_asks_gets_the_commit_rights() -> None:
    """W63"""
    (batch,) = CatalogBench().stage(measurement())
    assert [batch.claim() for _ in range(3)] == [True, False, False]


def test_claimed_batch_still_takes_measurements() -> None:
    """W63, W64: it is closed only when it is prepared."""
    bench = CatalogBench()
    (batch,) = bench.stage(measurement())
    batch.claim()
    assert bench.stage(measurement(1)) == [batch]
    bench.catalog.prepare(batch)
    assert bench.stage(measurement(2)) != [batch]


def test_every_writer_is_told_his_own_indexes_once() -> None:
    """W67"""
    bench = CatalogBench()
    first, second = RememberingWriter(), RememberingWriter()
    batch = bench.stage(measurement(), measurement(1), writer=first)[0]
    bench.stage(measurement(2), writer=second)
    batch.add(measurement(3), first, 7)
    batch.settle(None, ACKNOWLEDGED)
    batch.settle(CommandError(1, "late"), None)
    assert first.codes == {0: None, 1: None, 7: None}
    assert second.codes == {0: None}


def test_doubt_tells_those_who_do_not_wait_for_the_verdict() -> None:
    """W127"""
    bench = CatalogBench()
    told, patient = RememberingWriter(), Patient(wanted=True)
    batch = bench.stage(measurement(), writer=told)[0]
    bench.stage(measurement(1), writer=patient)
    assert batch.doubt(CommandError(6, "lost"), 0)
    assert told.codes == {0: 6}
    batch.settle(None, ACKNOWLEDGED)
    assert told.codes == {0: 6}
    assert patient.codes == {0: None}


def test_nobody_waits_for_a_verdict_nobody_needs() -> None:
    (batch,) = CatalogBench().stage(measurement())
    assert not batch.doubt(CommandError(6, "lost"), 0)


def test_unwritten_measurements_are_kept_for_those_who_sent_them_again() -> None:
    """W102, W127"""
    bench = CatalogBench()
    gone, back = Patient(wanted=False), Patient(wanted=True)
    batch = bench.stage(measurement(), writer=gone)[0]
    bench.stage(measurement(1), writer=back)
    batch.doubt(CommandError(6, "lost"), 0)
    batch.unwanted(CommandError(6, "not written"))
    assert gone.codes == {0: 6}
    assert back.codes == {}
    batch.settle(None, ACKNOWLEDGED)
    assert gone.codes == {0: 6}
    assert back.codes == {0: None}


def test_w102_writers_that_have_their_results_leave_a_batch() -> None:
    bench = CatalogBench()
    stays, goes = RememberingWriter(), RememberingWriter()
    (batch,) = bench.stage(measurement(1), writer=stays)
    bench.stage(measurement(2), writer=goes)
    batch.leave({goes})
    assert [writer for _, writer, _ in batch.rows()] == [stays]
    batch.settle(None, ACKNOWLEDGED)
    assert (list(stays.codes.values()), goes.codes) == ([None], {})
