"""``mapReduce``: the backend refuses it on the collection's view (C23)."""

from __future__ import annotations

from rewrite.plan import PassThrough, Plan, Request


def rewrite_map_reduce(request: Request) -> Plan:
    """Relayed; the backend refuses it."""
    return PassThrough()
