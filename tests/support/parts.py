"""Buckets that are stored in parts for a while."""

from __future__ import annotations

import threading
import time
from typing import Any

from pymongo.collection import Collection

from catalog.parts import bucket_key

DEADLINE_SECONDS = 60.0


def wait_until_joined(buckets: Collection[dict[str, Any]]) -> int:
    """Until no two documents belong to one bucket; returns how many there are.

    Start and place in their ids and the meta value tell. (The ids that servers make have the same place.)
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        ids = [(bucket_key(each["_id"].binary), repr(each.get("meta"))) for each in buckets.find({}, {"meta": 1})]
        if len(set(ids)) == len(ids):
            return len(ids)
        assert time.monotonic() < deadline, "parts are not joined"
        threading.Event().wait(0.1)
