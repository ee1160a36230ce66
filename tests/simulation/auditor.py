"""Judges from outside: knows what was sent, what was answered and what is stored; knows nothing of the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from bson import ObjectId

from tests.support.update_expressions import milliseconds


class Verdict(Enum):
    """What the client was told last."""

    NOTHING = "nothing"
    STORED = "stored"
    FAILED = "failed"


class Auditor:
    """Every measurement has an ``_id`` of its own."""

    def __init__(self, max_count: int, span_ms: int) -> None:
        self.max_count = max_count
        self.span_ms = span_ms
        self.sent: dict[ObjectId, Mapping[str, Any]] = {}
        self.verdicts: dict[ObjectId, Verdict] = {}
        self.present: dict[ObjectId, int] = {}
        self.ever: set[ObjectId] = set()
        self.answers = 0

    def sends(self, measurement: Mapping[str, Any]) -> None:
        self.sent[measurement["_id"]] = measurement
        self.verdicts[measurement["_id"]] = Verdict.NOTHING

    def answered(self, identity: ObjectId, *, stored: bool) -> None:
        """The client knows; what is acknowledged must have been stored by now."""
        self.answers += 1
        if stored:
            assert identity in self.ever, f"{identity} was acknowledged and never stored"
            self.verdicts[identity] = Verdict.STORED
        elif self.verdicts[identity] is not Verdict.STORED:
            self.verdicts[identity] = Verdict.FAILED

    def stored(self, bucket: Mapping[str, Any], base: int) -> None:
        """Rows ``base``… of this bucket were written by a proxy just now."""
        rows = rows_of(bucket)
        for row in rows[base:]:
            identity = row["_id"]
            assert identity in self.sent, f"{identity} was never sent"
            assert row == {name: value for name, value in self.sent[identity].items() if name != "m"}, "changed"
            assert self.sent[identity].get("m") == bucket.get("meta"), "in the bucket of another series"
            self.present[identity] = self.present.get(identity, 0) + 1
            assert self.present[identity] == 1, f"{identity} is stored twice"
            self.ever.add(identity)
        self.check_bucket(bucket)

    def joined(self, parts: list[dict[str, Any]], whole: Mapping[str, Any]) -> None:
        """One bucket took the place of these, in one step."""
        before = [row for part in parts for row in rows_of(part)]
        assert rows_of(whole) == before, "a join changed rows"
        assert all(part.get("meta") == whole.get("meta") for part in parts), "a join changed the series"
        self.check_bucket(whole)

    def removed(self, bucket: Mapping[str, Any], row: int | None = None) -> None:
        """Somebody deleted the bucket, or one row of it."""
        rows = rows_of(bucket)
        for each in rows if row is None else [rows[row]]:
            self.present[each["_id"]] -= 1

    def check_bucket(self, bucket: Mapping[str, Any]) -> None:
        """Limits and summaries (W5, W20-W31, W41)."""
        data, control = bucket["data"], bucket["control"]
        count = len(data["t"])
        assert list(data["t"]) == [str(row) for row in range(count)], "holes or disorder in the rows"
        assert count <= self.max_count, "too many rows"
        start_ms = milliseconds(control["min"]["t"])
        for name, column in data.items():
            rows = [int(key) for key in column]
            assert rows == sorted(rows), f"rows of {name}"
            assert set(rows) <= set(range(count)), f"rows of {name}"
            values = list(column.values())
            assert control["max"][name] >= max(values), f"control.max.{name}"
            assert control["min"][name] <= min(values), f"control.min.{name}"
        for value in data["t"].values():
            assert start_ms <= milliseconds(value) < start_ms + self.span_ms, "outside of the span"

    def check_end(self) -> None:
        """Nothing is lost, nothing is doubled, everybody has his answer."""
        for identity, verdict in self.verdicts.items():
            assert verdict is not Verdict.NOTHING, f"{identity} has no answer"
            if verdict is Verdict.STORED:
                assert identity in self.ever


def rows_of(bucket: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The measurements of a bucket, without meta."""
    data = bucket["data"]
    return [{name: column[key] for name, column in data.items() if key in column} for key in data["t"]]
