from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from proxy.clients.measuring import OTHER_COMMANDS, Measuring
from proxy.request.command import parse_command
from proxy.request.exchange import Exchange
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command
from tests.support.sessions import session


class Numbers:
    def __init__(self) -> None:
        self.invariant_violations = 0
        self.asked: list[tuple[str, str]] = []

    def requests(self, name: str, way: str) -> Any:
        self.asked.append((name, way))
        return object()


def exchange(name: str) -> Exchange:
    message = Message.from_bytes(command({name: 1, "$db": "d"}))
    one = Exchange(session(), FakeClient(), message, Told())
    one.command = parse_command(message)
    return one


def test_meters_are_kept_and_names_of_clients_are_not_labels() -> None:
    numbers = Numbers()
    measuring = Measuring(numbers)
    meters = []
    for name in ("find", "invented", "find", "invented too"):
        one = exchange(name)
        meters.append(measuring.begin(one, one.parsed(), "relay"))
        assert one.meter is meters[-1]
    assert meters[0] is meters[2]
    assert set(numbers.asked) == {("find", "relay"), (OTHER_COMMANDS, "relay")}


def test_internal_errors_are_counted_and_have_a_reference() -> None:
    numbers = Numbers()
    with capture_logs() as logs:
        reference = Measuring(numbers).report(exchange("invented"), ValueError("x"))
    assert numbers.invariant_violations == 1
    assert [(line["reference"], line["command"]) for line in logs] == [(reference, OTHER_COMMANDS)]
