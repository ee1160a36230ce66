"""The compiled kernel in several threads at once makes what it makes alone."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from tests.support.kernels import COMPILED, INTERPRETED
from tests.support.wanted import SCALE
from tests.support.wide_documents import damaged_bucket, wide_bucket

THREADS = 4
ROUNDS = round(16 * max(1.0, SCALE))


def _outcome(document: bytes) -> bytes | str | None:
    try:
        compressed: bytes | None = (COMPILED or INTERPRETED).compressed(document, b"t")
    except ValueError as error:
        return str(error)
    return compressed


def test_wide_objects_compressed_side_by_side_are_those_compressed_alone() -> None:
    """Objects of 20 to 300 fields that vary from row to row: whatever is shared between threads shows here."""
    chance = random.Random(7)
    documents = [wide_bucket(chance, 30, width) for width in (20, 40, 100, 300) for _ in range(6)]
    documents += [damaged_bucket(chance, document) for document in documents[::4]]
    alone = [_outcome(document) for document in documents]
    assert sum(isinstance(each, bytes) for each in alone) > 16
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(ROUNDS):
            order = chance.sample(range(len(documents)), len(documents))
            together = list(pool.map(_outcome, (documents[each] for each in order)))
            assert sum(made != alone[each] for each, made in zip(order, together, strict=True)) == 0
