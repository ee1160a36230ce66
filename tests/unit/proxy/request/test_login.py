"""The proxy's own certificate must never become the identity of a client."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from catalog.errors import CommandError
from proxy.request.command import Command, parse_command
from proxy.request.login import refuse_certificate_login, speculates_with_certificate
from proxy.wire import op_msg
from proxy.wire.message import Message


def command(body: dict[str, Any]) -> Command:
    return parse_command(Message.from_bytes(op_msg.build(1, 0, bson.encode({**body, "$db": "$external"}))))


@pytest.mark.parametrize(
    "body",
    [
        {"authenticate": 1, "mechanism": "MONGODB-X509"},
        {"authenticate": 1, "mechanism": "MONGODB-X509", "user": "CN=somebody"},
        {"authenticate": 1},
        {"saslStart": 1, "mechanism": "MONGODB-X509", "payload": b""},
        {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"", "x": {"mechanism": "MONGODB-X509"}},
    ],
    ids=str,
)
def test_certificate_logins_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(CommandError, match="SCRAM") as refused:
        refuse_certificate_login(command(body))
    assert refused.value.code == 18


def test_scram_passes() -> None:
    refuse_certificate_login(command({"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=x"}))
    refuse_certificate_login(command({"saslContinue": 1, "conversationId": 1, "payload": b""}))
    refuse_certificate_login(command({"logout": 1}))


def test_speculation_with_a_certificate_is_seen() -> None:
    scram = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=x", "db": "admin"}
    assert not speculates_with_certificate(command({"hello": 1}))
    assert not speculates_with_certificate(command({"hello": 1, "speculativeAuthenticate": scram}))
    x509 = {"authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external"}
    assert speculates_with_certificate(command({"hello": 1, "speculativeAuthenticate": x509}))


def test_second_speculation_of_the_same_name_is_seen() -> None:
    scram = bson.encode({"speculativeAuthenticate": {"saslStart": 1, "mechanism": "SCRAM-SHA-256"}})
    x509 = bson.encode({"speculativeAuthenticate": {"authenticate": 1}})
    inner = bson.encode({"hello": 1})[4:-1] + scram[4:-1] + x509[4:-1] + bson.encode({"$db": "admin"})[4:-1]
    body = (len(inner) + 5).to_bytes(4, "little") + inner + b"\0"
    raw = op_msg.build(1, 0, body)
    assert speculates_with_certificate(parse_command(Message.from_bytes(raw)))
