"""Kinds of ``count`` and ``distinct``."""

from __future__ import annotations

from typing import Any

from bench.kinds.finds import HOST
from bench.kinds.kind import Document, Kind, Times


def commands(times: Times) -> list[Kind]:
    """All of them."""
    hour = times.window(0.5, 0.7)
    return [
        _count("everything"),
        _count("series", {"m.host": HOST}),
        _count("several series", {"m.host": {"$in": [HOST, "host_008"]}}),
        _count("range", {"time": hour}),
        _count("range of a series", {"m.host": HOST, "time": hour}),
        _count("measurement", {"v": {"$gt": 90}}),
        _count("rising measurement", {"counter": {"$gte": 1100}}),
        _count("range and measurement", {"time": hour, "v": {"$gt": 90}}),
        _count("limit", {}, limit=100),
        _count("skip", {}, skip=100),
        _count("missing", {"w": {"$exists": False}}),
        _count("text", {"s": "alpha"}),
        _count("$expr", {"$expr": {"$gte": ["$time", times.at(0.9)]}}),
        _distinct("series", "m.host"),
        _distinct("meta", "m"),
        _distinct("meta array", "m.tags"),
        _distinct("series of a range", "m.host", {"time": hour}),
        _distinct("series with a measurement", "m.host", {"v": {"$gt": 99}}),
        _distinct("text", "s"),
        _distinct("text of a series", "s", {"m.host": HOST}),
        _distinct("numbers", "n"),
        _distinct("numbers of a range", "n", {"time": hour}),
        _distinct("elements", "list"),
        _distinct("sub-document", "o.a"),
        _distinct("times of a series", "time", {"m.host": HOST}),
    ]


def _count(name: str, query: Document | None = None, **options: Any) -> Kind:
    return Kind(f"count {name}", {"count": "", "query": query or {}, **options})


def _distinct(name: str, key: str, query: Document | None = None) -> Kind:
    return Kind(f"distinct {name}", {"distinct": "", "key": key, "query": query or {}})
