"""``mapReduce``: the backend refuses it on the collection's view (C23)."""

from __future__ import annotations

from rewrite.plan import PassThrough, Plan, Request


def rewrite_map_reduce(request: Request) -> Plan:
    """Left to the backend, whose refusal is the answer."""
    return PassThrough()
