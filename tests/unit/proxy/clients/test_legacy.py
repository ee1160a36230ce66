"""Commands of the handshake still come as OP_QUERY, everything else is refused as 6.0 does."""

from __future__ import annotations

import struct
from typing import Any

import bson
import pytest

from catalog.errors import CommandError
from proxy.clients.legacy import legacy_command, refuse_legacy
from proxy.request.command_table import LEGACY_COMMANDS
from proxy.request.exchange import Exchange
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.sessions import session


def query(body: dict[str, Any], *, collection: str = "admin.$cmd", number_to_return: int = -1) -> Message:
    content = struct.pack("<i", 0) + collection.encode() + b"\0" + struct.pack("<ii", 0, number_to_return)
    content += bson.encode(body)
    return Message.from_bytes(struct.pack("<iiii", 16 + len(content), 7, 0, 2004) + content)


def exchange(message: Message) -> tuple[Exchange, FakeClient]:
    client = FakeClient()
    return Exchange(session(), client, message, Told()), client


@pytest.mark.parametrize("name", sorted(LEGACY_COMMANDS))
def test_handshake_is_read(name: str) -> None:
    asked, client = exchange(query({name: 1}))
    command = legacy_command(asked)
    assert command is not None
    assert command.name == name
    assert client.written == []


def test_other_commands_are_refused() -> None:
    with pytest.raises(CommandError, match="Unsupported OP_QUERY command: ping") as refused:
        legacy_command(exchange(query({"ping": 1}))[0])
    assert refused.value.code == 352


def test_queries_of_collections_are_refused() -> None:
    asked, client = exchange(query({}, collection="d.c"))
    assert legacy_command(asked) is None
    assert b"OP_QUERY is no longer supported" in client.written[0]
    assert client.finished == 1


def test_a_command_has_one_answer() -> None:
    with pytest.raises(CommandError) as refused:
        legacy_command(exchange(query({"hello": 1}, number_to_return=5))[0])
    assert refused.value.code == 16979


def test_refusal_names_the_opcode() -> None:
    asked, client = exchange(query({}))
    refuse_legacy(asked, "OP_GET_MORE")
    assert b"OP_GET_MORE is no longer supported" in client.written[0]
