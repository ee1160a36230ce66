from __future__ import annotations

import math

import bson
import pytest

from catalog.errors import CommandError
from catalog.ports import Acknowledgement
from proxy.request.exchange import Exchange, encode
from proxy.request.slow_threshold import NEVER_SLOW, Ended, SlowThreshold
from proxy.wire import op_msg
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command
from tests.support.sessions import session

PING = command({"ping": 1, "$db": "admin"})
REPLY = op_msg.build(5, 41, bson.encode({"ok": 1.0}))


class Slow:
    """Ends commands under a threshold, which may change."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.ended: list[Ended] = []
        self.threshold = SlowThreshold(seconds, lambda exchange, ended: self.ended.append(ended))

    def exchange(self) -> Exchange:
        return Exchange(session(), FakeClient(), Message.from_bytes(PING), Told(), self.threshold)


def test_every_end_is_reported_once() -> None:
    slow = Slow()
    document, acknowledgement = encode({"ok": 1.0}), Acknowledgement(answered_at_seconds=1.0)
    slow.exchange().reply(document, acknowledgement)
    slow.exchange().whole(REPLY)
    slow.exchange().relayed(REPLY)
    slow.exchange().refuse(CommandError(2, "x"))
    slow.exchange().close()
    streamed = slow.exchange()
    streamed.write(REPLY[:20])
    streamed.write(REPLY[20:])
    streamed.done()
    slow.exchange().abandon()
    ends = [
        (each.document is not None, each.message is not None, each.closed, each.disconnected) for each in slow.ended
    ]
    assert ends == [
        (True, False, False, False),
        (False, True, False, False),
        (False, True, False, False),
        (True, False, False, False),
        (False, False, True, False),
        (False, False, False, False),
        (False, False, False, True),
    ]
    assert slow.ended[0].acknowledgement is acknowledgement
    assert slow.ended[5].streamed_bytes == len(REPLY)
    assert all(0 <= each.seconds < 10 for each in slow.ended)


@pytest.mark.parametrize("seconds", [60.0, math.inf])
def test_fast_commands_are_not_reported(seconds: float) -> None:
    slow = Slow(seconds)
    slow.exchange().whole(REPLY)
    slow.exchange().abandon()
    assert slow.ended == []


def test_a_new_threshold_counts_for_commands_that_run() -> None:
    slow = Slow(math.inf)
    running = slow.exchange()
    slow.threshold.seconds = 0.0
    running.whole(REPLY)
    assert len(slow.ended) == 1


def test_nothing_is_slow_without_a_threshold() -> None:
    one = Exchange(session(), FakeClient(), Message.from_bytes(PING), Told())
    assert one.slow is NEVER_SLOW
    one.whole(REPLY)
