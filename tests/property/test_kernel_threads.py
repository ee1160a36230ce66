"""The compiled kernel in several threads at once makes what it makes alone."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from tests.support.kernels import COMPILED, INTERPRETED
from tests.support.wanted import SCALE
from tests.support.wide_documents import BUCKET_ID, START_MS, damaged_bucket, wide_bucket, wide_rows

THREADS = 4
ROUNDS = round(16 * max(1.0, SCALE))


KERNEL = COMPILED or INTERPRETED


def _outcome(document: bytes) -> tuple[bytes | str | None, bool]:
    """What is compressed, and whether its summaries are true: neither has the interpreter's lock."""
    try:
        compressed: bytes | None = KERNEL.compressed(document, b"t")
    except ValueError as error:
        return str(error), KERNEL.has_true_header(document, b"t")
    return compressed, KERNEL.has_true_header(document, b"t")


def _joined(chance: random.Random) -> bytes:
    """A bucket of equal rows, whose summaries are true."""
    row = KERNEL.parse_measurement(wide_rows(chance)[0], b"t", b"m")
    part = KERNEL.one_row_part(BUCKET_ID, b"t", START_MS - 3_600_000, row, False)
    document, *_ = KERNEL.join_documents([part] * 30, BUCKET_ID, b"t", b"m")
    assert isinstance(document, bytes)
    return document


def test_wide_objects_compressed_and_checked_side_by_side_are_those_done_alone() -> None:
    """Objects of 20 to 300 fields that vary from row to row: whatever is shared between threads shows here."""
    chance = random.Random(7)
    documents = [wide_bucket(chance, 30, width) for width in (20, 40, 100, 300) for _ in range(6)]
    documents += [_joined(chance) for _ in range(6)]
    documents += [damaged_bucket(chance, document) for document in documents[::4]]
    alone = [_outcome(document) for document in documents]
    assert sum(isinstance(compressed, bytes) for compressed, _ in alone) > 16
    assert {is_true for _, is_true in alone} == {True, False}
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(ROUNDS):
            order = chance.sample(range(len(documents)), len(documents))
            together = list(pool.map(_outcome, (documents[each] for each in order)))
            assert sum(made != alone[each] for each, made in zip(order, together, strict=True)) == 0
