"""Effects of commands in transactions wait for the commit, and are bounded."""

from __future__ import annotations

from typing import Any

import bson
from bson.int64 import Int64

from catalog.namespaces import Namespace
from proxy.relay.transaction_effects import LONGEST_SESSION_BYTES, MOST_EFFECTS, MOST_TRANSACTIONS, TransactionEffects
from proxy.request.command import Command, parse_command
from proxy.wire import op_msg
from proxy.wire.message import Message
from rewrite.plan import Effect, ForgetNamespace


def forget(name: str) -> ForgetNamespace:
    return ForgetNamespace(Namespace("d", name))


def sent(name: str, session: bytes = b"s", number: int = 1) -> Command:
    body: dict[str, Any] = {name: 1, "lsid": {"id": session}, "txnNumber": Int64(number), "$db": "d"}
    return parse_command(Message.from_bytes(op_msg.build(1, 0, bson.encode(body))))


def test_only_the_commit_of_that_transaction_of_that_user_counts() -> None:
    taken: list[Effect] = []
    effects = TransactionEffects(taken.append)
    assert not effects.concerns(sent("commitTransaction"))
    effects.hold(sent("delete"), "me", (forget("a"),))
    effects.hold(sent("delete"), "me", (forget("a"), forget("b")))
    assert effects.concerns(sent("commitTransaction"))
    assert not effects.concerns(sent("find"))
    assert not effects.concerns(None)
    for other in (sent("commitTransaction", b"t"), sent("commitTransaction", number=2)):
        effects.ended(other, "me", changed=True)
    effects.ended(sent("commitTransaction"), "you", changed=True)
    assert taken == []
    effects.ended(sent("commitTransaction"), "me", changed=True)
    assert taken == [forget("a"), forget("b")]
    assert not effects.concerns(sent("commitTransaction"))


def test_an_abort_and_a_refused_commit_count_nothing() -> None:
    taken: list[Effect] = []
    effects = TransactionEffects(taken.append)
    for name, changed in (("abortTransaction", True), ("commitTransaction", False)):
        effects.hold(sent("delete"), "me", (forget("a"),))
        effects.ended(sent(name), "me", changed=changed)
        effects.ended(sent("commitTransaction"), "me", changed=True)
    assert taken == []


def test_what_is_too_much_counts_at_once() -> None:
    taken: list[Effect] = []
    effects = TransactionEffects(taken.append)
    for number in range(MOST_TRANSACTIONS + 1):
        effects.hold(sent("delete", number=number), "me", (forget(str(number)),))
    assert taken == [forget("0")]
    taken.clear()
    many = tuple(forget(str(number)) for number in range(MOST_EFFECTS + 1))
    effects.hold(sent("delete", b"many"), "me", many)
    assert many == tuple(taken[-len(many) :])
    taken.clear()
    effects.hold(sent("delete", bytes(LONGEST_SESSION_BYTES)), "me", (forget("a"),))
    assert taken == [forget("a")]
