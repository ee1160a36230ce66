"""Without access control, everything may be read."""

from __future__ import annotations

from catalog.namespaces import Namespace
from proxy.reads.plan_environment import NoReadGate


async def test_without_access_control_everything_is_allowed() -> None:
    gate, namespace = NoReadGate(), Namespace("db", "x")
    assert await gate.allows(None, ("find",), namespace)
    assert await gate.reads_buckets(None, namespace)
