"""Which commands wait for a creation, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from catalog.namespaces import Namespace
from proxy.clients.creations import Creations
from proxy.request.command import Command, parse_command
from proxy.wire.message import Message
from tests.support.wire import op_msg

CPU = Namespace("db", "cpu")


def command(document: dict[str, Any]) -> Command:
    return parse_command(Message.from_bytes(op_msg({**document, "$db": document.get("$db", "db")})))


@pytest.mark.parametrize(
    ("document", "waits"),
    [
        ({"update": "cpu", "updates": []}, True),
        ({"update": "other", "updates": []}, False),
        ({"update": "cpu", "updates": [], "$db": "other"}, False),
        ({"create": "cpu", "validator": {}}, True),
        ({"aggregate": "source", "pipeline": [{"$merge": "cpu"}]}, True),
        ({"aggregate": "source", "pipeline": [{"$match": {}}]}, False),
        ({"renameCollection": "db.a", "to": "db.cpu", "$db": "admin"}, True),
        ({"find": "cpu"}, False),
    ],
)
async def test_commands_that_could_take_the_name_wait(document: dict[str, Any], waits: bool) -> None:
    creations, asked = Creations(), command(document)
    assert not creations.disturbed_by(asked)
    with creations.creating(CPU):
        assert creations.is_under_way(CPU)
        assert creations.disturbed_by(asked) is waits
        waiting = asyncio.ensure_future(creations.undisturbed(asked))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert waiting.done() is not waits
    assert await waiting
    assert not creations.is_under_way(CPU)


async def test_nobody_waits_for_ever() -> None:
    creations = Creations(wait_seconds=0.01)
    with creations.creating(CPU):
        assert not await creations.ended(CPU)
        with creations.creating(CPU):
            pass
        # The later one of two has ended.
        assert await creations.ended(CPU)
