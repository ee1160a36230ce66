"""``python -m tests.sanitize.work alone|threads SECONDS SEED``: the kernel at work on wide, nested, hostile documents.

Results are looked at, too: what is compressed or joined compares equal, threads make what one makes alone. The package
has chosen the kernel by then (``tests.sanitize.plugin``).
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from catalog.bson import raw
from catalog.errors import CommandError
from catalog.kernel.rollover import Limits
from tests.support.kernels import COMPILED, INTERPRETED
from tests.support.wide_documents import BUCKET_ID, START_MS, damaged_bucket, wide_bucket, wide_rows

KERNEL = COMPILED or INTERPRETED
THREADS = 4
COMPARED_WITH_INTERPRETED = 25
"""One of so many is made by the interpreted form as well, which is slow."""


def _outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except (ValueError, CommandError, OverflowError) as error:
        return type(error), str(error)


def _measured(chance: random.Random) -> Any:
    """A bucket by way of measurements: staged, written, grown, reopened, in parts, joined."""
    documents = wide_rows(chance)
    if chance.random() < 0.3:
        documents = [damaged_bucket(chance, each) if chance.random() < 0.3 else each for each in documents]
    parsed = [_outcome(KERNEL.parse_measurement, each, b"t", b"m") for each in documents]
    measurements = [each for each in parsed if not isinstance(each, tuple)]
    if not measurements:
        return None
    meta = measurements[0].meta
    limits = Limits(max_count=1000, max_size_bytes=1 << 22, min_count=1)
    start_ms = START_MS - 3_600_000
    state = KERNEL.BucketState(BUCKET_ID, b"t", b"m", meta, start_ms, 1 << 40, limits)
    staged = [each for each in measurements if each.meta == meta and not state.try_stage(each)]
    half = chance.randrange(len(staged) + 1)
    written = []
    for batch in (staged[:half], staged[half:]):
        if batch:
            written.append(state.prepare(batch))
            state.committed(len(batch))
    document = written[0] if written and half in (0, len(staged)) else None
    parts = [KERNEL.one_row_part(BUCKET_ID, b"t", start_ms, each, chance.random() < 0.5) for each in staged]
    joined = _outcome(KERNEL.join_documents, parts, BUCKET_ID, b"t", b"m")
    if isinstance(joined[0], bytes):
        assert KERNEL.holds_parts(joined[0], parts, b"t"), "a join that does not hold its parts"
        rows = [_without_meta(each.raw) for each in staged]
        assert KERNEL.holds_rows(joined[0], rows, b"t"), "a join that does not hold its rows"
        broken = damaged_bucket(chance, joined[0])
        _outcome(KERNEL.holds_parts, broken, parts, b"t")
        _outcome(KERNEL.holds_rows, broken, rows, b"t")
        assert KERNEL.has_true_header(joined[0], b"t"), "a join whose summaries are not those of its rows"
        _outcome(KERNEL.has_true_header, broken, b"t")
        _outcome(KERNEL.join_documents, [*parts, damaged_bucket(chance, parts[-1])], BUCKET_ID, b"t", b"m")
        _compressed(chance, joined[0])
    for each in (document, None if document is None else damaged_bucket(chance, document)):
        if each is not None:
            _outcome(KERNEL.BucketState.from_document, each, b"t", b"m", 1 << 40, limits)
    return None


def _without_meta(document: bytes) -> bytes:
    return raw.document(raw.element(*field) for field in raw.fields_of(document).items() if field[0] != b"m")


def _compressed(chance: random.Random, document: bytes) -> Any:
    packed = _outcome(KERNEL.compressed, document, b"t")
    if chance.randrange(COMPARED_WITH_INTERPRETED) == 0:
        other = _outcome(INTERPRETED.compressed, document, b"t")
        assert (packed == other) or isinstance(packed, tuple) is isinstance(other, tuple), "the forms differ"
    if isinstance(packed, bytes):
        assert KERNEL.same_rows(document, packed, b"t"), "a compressed bucket that is not what it was"
        broken = damaged_bucket(chance, packed)
        _outcome(KERNEL.same_rows, document, broken, b"t")
        for value in raw.fields_of(raw.fields_of(packed)[b"data"], 1).values():
            _outcome(KERNEL.column_cells, damaged_bucket(chance, value[6:]), chance.choice((2, 30, 5000)))
    return packed


def _bucket(chance: random.Random) -> bytes:
    document = wide_bucket(chance, untouchable=chance.random() < 0.05)
    return damaged_bucket(chance, document) if chance.random() < 0.3 else document


def alone(chance: random.Random, until: float) -> int:
    """How many documents it were."""
    count = 0
    while time.monotonic() < until:
        _compressed(chance, _bucket(chance))
        _measured(chance)
        count += 2
    return count


def _job(document: bytes) -> Any:
    packed = _outcome(KERNEL.compressed, document, b"t")
    same = isinstance(packed, bytes) and KERNEL.same_rows(document, packed, b"t")
    return packed, same, _outcome(KERNEL.has_true_header, document, b"t")


def threads(chance: random.Random, until: float) -> int:
    """How many documents it were."""
    count = 0
    with ThreadPoolExecutor(THREADS) as pool:
        while time.monotonic() < until:
            documents = [_bucket(chance) for _ in range(16)]
            made = [_job(each) for each in documents]
            assert all(same for packed, same, _ in made if isinstance(packed, bytes)), "compressed wrongly"
            for _ in range(4):
                order = chance.sample(range(len(documents)), len(documents))
                together = list(pool.map(_job, (documents[each] for each in order)))
                assert together == [made[each] for each in order], "threads make something else"
                count += len(order)
    return count


def main() -> None:
    """See the module."""
    way = {"alone": alone, "threads": threads}[sys.argv[1]]
    count = way(random.Random(int(sys.argv[3])), time.monotonic() + float(sys.argv[2]))
    print(f"{sys.argv[1]}: {count} documents", flush=True)


if __name__ == "__main__":
    main()
