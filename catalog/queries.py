"""A query that the backend answers without a look at what is stored."""

from __future__ import annotations

from typing import Any, Final

from bson import MinKey

NO_DOCUMENT: Final[dict[str, Any]] = {"_id": {"$lt": MinKey()}}
"""Matches nothing, whatever is stored.

The bounds on ``_id`` are empty. For an empty ``$in`` a server has none, and scans a whole collection that is clustered
by ``_id``, as those of buckets are (6.0.27, 6.0.5, 5.0.4).
"""
