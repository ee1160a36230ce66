"""A short soak, and whether it would notice anything; ``make soak`` is the long form."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from bson import ObjectId
from bson.raw_bson import RawBSONDocument

from catalog import kernel
from catalog.kernel import headers
from tests.soak.chapter import Chapter
from tests.soak.headers import wrong_headers
from tests.soak.ledger import Ledger, key_of, keys_of
from tests.soak.writers import START_MS
from tests.support.generated_rows import SCALARS, document, element, leaves, metas, row, template
from tests.support.mongod import MongodProcess
from tests.support.raw_rows import elements, split
from tests.support.stored_metas import stored_metas

SECONDS = 6
TOGETHER_SECONDS = 1
FINDINGS = Path("build/soak")


@pytest.mark.timeout(300)
def test_every_value_is_stored_as_it_was_acknowledged(tmp_path: Path, scale: float) -> None:
    """On one of both kinds of backend, whichever comes up; the long form goes through both in turn."""
    backend = MongodProcess(tmp_path / "mongod", replica_set=random.choice((None, "rs0")))
    try:
        backend.start()
        chapter = Chapter(tmp_path, backend, str(random.randrange(1 << 31)), FINDINGS)
        account = chapter.run(SECONDS * scale)
        assert account.violations == [], f"seed {chapter.seed}: {account}"
        assert account.values > 10_000, str(account)
    finally:
        backend.remove()


@pytest.mark.timeout(300)
def test_what_two_proxies_write_is_stored_as_it_was_acknowledged(tmp_path: Path, scale: float) -> None:
    """Buckets of one are given up, and the other absorbs them, while both go on."""
    backend = MongodProcess(tmp_path / "mongod", replica_set="rs0")
    try:
        backend.start()
        seed, wide = str(random.randrange(1 << 31)), scale > 1
        chapter = Chapter(tmp_path, backend, seed, FINDINGS, faults=wide, proxies=2, collections=4 if wide else 0)
        account = chapter.run(TOGETHER_SECONDS * scale)
        assert account.violations == [], f"seed {chapter.seed}: {account}"
        assert account.absorbed > 0, f"seed {chapter.seed}: {account}"
        assert account.values > 1_000, str(account)
    finally:
        backend.remove()


def test_what_is_compared_is_what_a_server_stores_natively(mongod: MongodProcess, db_name: str) -> None:
    chance = random.Random(1)
    database = mongod.shared_client[db_name]
    database.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    sent = metas(chance, 20)
    ledger = Ledger(stored_metas(database, sent))
    for _ in range(12):
        kind = template(chance)
        for _ in range(8):
            meta = chance.choice([each for each in sent if each[:1] != b"\x06"])
            made = row(chance, kind, chance.randrange(10**12), meta, 1, element("_id", (7, ObjectId().binary)))
            database.ts.insert_one(RawBSONDocument(made.raw))
            ledger.wrote(meta, 1, [made], [])
    stored = Counter(keys_of(raw for chunk in database.ts.find_raw_batches({}) for raw in split(chunk)))
    values, missing, strange = ledger.compare(stored)
    assert (values > 1000, missing, strange) == (True, Counter(), Counter())


def test_headers_of_a_server_are_true_and_others_are_noticed(mongod: MongodProcess, db_name: str) -> None:
    """W10, W20-W28, W31: what the soak asks of headers holds for a server's own buckets."""
    chance = random.Random(5)
    database = mongod.shared_client[db_name]
    options = {"timeField": "t", "metaField": "m", "granularity": "minutes"}
    database.create_collection("ts", timeseries=options)
    for meta in metas(chance, 12)[:8]:
        kind = template(chance)
        made = [
            row(chance, kind, START_MS + each * 7_000_000, meta, 1, element("_id", (7, ObjectId().binary)))
            for each in (1, 0, 5, 2, 40, 3)
        ]
        database.ts.insert_many([RawBSONDocument(each.raw) for each in made])
    stored = [raw for chunk in database["system.buckets.ts"].find_raw_batches({}) for raw in split(chunk)]
    assert len(stored) > 8
    for form in (kernel, headers):
        assert list(wrong_headers(stored, options, form)) == []
        for name in (b"min", b"max"):
            for other in (b"tag", b"t"):
                assert len(list(wrong_headers([_with_other_end(stored[0], name, other)], options, form))) == 1


def _with_other_end(bucket: bytes, end: bytes, field: bytes) -> bytes:
    """The lowest byte of a number in it is another one."""
    at = bucket.index(field + b"\0", bucket.index(b"\3" + end + b"\0")) + len(field) + 1
    return bucket[:at] + bytes((bucket[at] ^ 1,)) + bucket[at + 1 :]


@pytest.mark.parametrize("kind", range(len(SCALARS)))
def test_every_changed_byte_is_noticed(kind: int) -> None:
    value = SCALARS[kind](random.Random(kind))
    raw = document(
        element("a", value), element("b", (3, document(element("c", value)))), element("m", (0x10, bytes(4)))
    )
    for position in range(len(element("a", value)) - len(value[1]) + 4, len(element("a", value)) + 4):
        changed = bytearray(raw)
        changed[position] ^= 1
        try:
            assert key_of(bytes(changed)) != key_of(raw)
        except (ValueError, IndexError, TypeError):
            continue  # no document any more


def test_rows_are_counted() -> None:
    made = row(random.Random(1), template(random.Random(2)), 5, b"", 1, element("_id", (0x10, bytes(4))))
    ledger = Ledger({b"": b""})
    ledger.wrote(b"", 1, [made, made], [made])
    key = (b"", made.digest)
    assert ledger.compare(Counter({key: 1}))[1] == Counter({key: 1})
    assert ledger.compare(Counter({key: 3}))[1:] == (Counter(), Counter())
    assert ledger.compare(Counter({key: 4}))[2] == Counter({key: 1})
    assert ledger.deleted(tag=1) == 2
    assert ledger.compare(Counter())[1:] == (Counter(), Counter())


def test_all_types_are_made() -> None:
    chance, types = random.Random(3), set[int]()
    for _ in range(200):
        made = row(chance, template(chance), 5, b"", 1, element("_id", (0x10, bytes(4))))
        types |= {each[0] for _, each in elements(made.raw)}
        assert leaves((3, made.raw)) >= 3
    assert types == {*range(1, 0x14), 0x7F, 0xFF}
