"""A load that grows buckets in parts, and the metric of those that are not joined yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pymongo.collection import Collection

START: Final = datetime(2024, 1, 1, tzinfo=UTC)
UNJOINED: Final = "tsproxy_unjoined_parts"


def load(collection: Collection[dict[str, Any]], first: int) -> None:
    """300 inserts for three series, from this second on."""
    for second in range(first, first + 300):
        collection.insert_one({"_id": second, "t": START + timedelta(seconds=second), "m": second % 3})
