"""Rows of the same series through several proxies, at the same times, so that their buckets become one at rest."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pymongo
from bson import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from tests.soak.ledger import Ledger
from tests.soak.writers import START_MS, Tally, Target
from tests.support.generated_rows import Field, Row, Template, element, row, template
from tests.support.stored_metas import stored_metas

SERIES = 16
"""Enough in an insert for growth in parts."""
INSERTS = 12
"""Of each proxy between two rests."""
MOST_ROW_BYTES = 1_000
PAUSE_MS = 250


def target_for(chance: random.Random, database: Database[Any]) -> Target:
    """A collection of their own, with as many series as kinds of rows."""
    options = {"timeField": "t", "metaField": "m", "granularity": "seconds"}
    database.create_collection("together", timeseries=options)
    metas = [element("m", (0x10, number.to_bytes(4, "little"))) for number in range(SERIES)]
    # Rows of a kind that changes its types are seldom in one bucket.
    kinds = [_small(chance, steady=number % 4 > 0) for number in range(SERIES)]
    return Target("together", options, kinds, metas, Ledger(stored_metas(database, metas)), {})


def _small(chance: random.Random, *, steady: bool) -> Template:
    while True:
        kind = template(chance)
        if steady:
            fields = tuple(field for field in kind.fields if _is_steady(chance, field))
            kind = Template(fields, values=len(fields) + 3)
        made = [_row(chance, kind, 0, element("m", (0x10, bytes(4)))).raw for _ in range(8)]
        if kind.fields and max(map(len, made)) <= MOST_ROW_BYTES:
            return kind


def _is_steady(chance: random.Random, field: Field) -> bool:
    types = {field.make(chance)[0] for _ in range(8)}
    return len(types) == 1 and types.isdisjoint((3, 4))


def _row(chance: random.Random, kind: Template, time_ms: int, meta: bytes) -> Row:
    return row(chance, kind, time_ms, meta, 0, element("_id", (7, ObjectId().binary)))


class Together:
    """Writes in the name of all proxies by turns."""

    def __init__(self, seed: str, target: Target, tally: Tally) -> None:
        self._chance = random.Random(f"{seed} together")
        self._target = target
        self._tally = tally
        self._now_ms = START_MS

    def write(self, uris: Sequence[str], database: str, concern: WriteConcern, options: dict[str, Any]) -> None:
        """So many inserts through each proxy, of a row of each series; lost ones are in doubt."""
        with ExitStack() as stack:
            clients: list[pymongo.MongoClient[Any]] = [
                stack.enter_context(pymongo.MongoClient(uri, **options)) for uri in uris
            ]
            for _ in range(INSERTS):
                for client in clients:
                    self._insert(client[database].get_collection(self._target.name, write_concern=concern))

    def _insert(self, collection: Any) -> None:
        target = self._target
        self._now_ms += PAUSE_MS
        rows = [
            _row(self._chance, kind, self._now_ms, meta)
            for kind, meta in zip(target.templates, target.metas, strict=True)
        ]
        try:
            collection.insert_many([RawBSONDocument(each.raw) for each in rows], ordered=False)
            are_sure = True
        except PyMongoError as error:
            self._tally.errors[type(error).__name__] += 1
            are_sure = False
        self._tally.inserts += 1
        for each, meta in zip(rows, target.metas, strict=True):
            target.ledger.wrote(meta, 0, [each] if are_sure else [], [] if are_sure else [each])
