"""Reads during the load: the latest rows of a series, and an average over it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from proxy.tools.bench.shapes import CHECK_FIELD, Shape, mixed
from proxy.tools.bench.tally import Tally, class_of

LATEST_ROWS: Final = 10
PAUSE_SECONDS: Final = 0.1
"""After an error."""


class Reader:
    """Reads over one connection; ``tally`` has what was measured."""

    def __init__(self, collection: Collection[dict[str, Any]], shape: Shape, series: int, number: int) -> None:
        self.tally = Tally()
        self._collection = collection
        self._shape = shape
        self._series = series
        self._number = number

    def run(self, is_over: Callable[[], bool]) -> None:
        """Read again and again until ``is_over``; the two kinds alternate."""
        tally, count = self.tally, 0
        while not is_over():
            query = self._query(mixed(self._number << 32 | count) % self._series)
            since_seconds = time.perf_counter()
            try:
                if count % 2:
                    average = {"$group": {"_id": None, "average": {"$avg": f"${CHECK_FIELD}"}}}
                    list(self._collection.aggregate([{"$match": query}, average]))
                else:
                    list(self._collection.find(query).sort(self._shape.time_field, -1).limit(LATEST_ROWS))
            except PyMongoError as error:
                tally.errors[f"read: {class_of(error)}"] += 1
                time.sleep(PAUSE_SECONDS)
            else:
                tally.reading.add(time.perf_counter() - since_seconds)
                tally.reads += 1
            count += 1

    def _query(self, series: int) -> Mapping[str, Any]:
        path = self._shape.series_path
        return {} if path is None else {path: series}
