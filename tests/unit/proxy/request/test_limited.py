from __future__ import annotations

import asyncio
from typing import Any

import pytest

from catalog.errors import CommandError
from catalog.identity import NOBODY, identity_of
from proxy.observe.limit_numbers import LimitNumbers
from proxy.request.exchange import Exchange
from proxy.request.limited import LABELS, OVERLOADED, LimitBook, Limited, QueuedCommand
from proxy.settings.limits import EVERYONE, DatabaseLimits, EffectiveLimits, UserLimits
from proxy.wire.message import Message
from tests.support.eventually import eventually
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command
from tests.support.sessions import session

ANN, BOB = identity_of([("ann", "admin")]), identity_of([("bob", "admin")])


class One:
    """A limited user, with commands that note what happens to them."""

    def __init__(self, **limits: Any) -> None:
        self.numbers = LimitNumbers()
        self.counts = self.numbers.of("user", "*")
        self.limited = Limited("user", "ann@admin", EffectiveLimits(**limits), self.counts)
        self.said: list[str] = []

    def waiting(self, name: str, cost: int = 1) -> QueuedCommand:
        exchange = Exchange(session(), FakeClient(), Message.from_bytes(command({"ping": 1, "$db": "d"})), Told())
        return QueuedCommand(
            exchange, cost, lambda: self.said.append(name), lambda: self.said.append(f"{name} refused")
        )


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_places_are_counted_and_given_on() -> None:
    one = One(max_commands=2)
    limited = one.limited
    assert [limited.take(), limited.take(), limited.take()] == [True, True, False]
    for name in "abc":
        limited.wait_for_place("client", one.waiting(name))
    assert (one.counts.commands, one.counts.waiting_commands) == (2, 3)
    limited.give_back()
    assert one.said == []
    await turns()
    assert (one.said, one.counts.commands, one.counts.waiting_commands) == (["a"], 2, 2)
    assert not limited.take()
    limited.give_back()
    limited.give_back()
    await turns()
    assert (one.said, limited.running) == (["a", "b", "c"], 2)
    limited.give_back()
    limited.give_back()
    assert limited.is_idle


async def test_who_comes_late_does_not_overtake() -> None:
    one = One(max_commands=1)
    assert one.limited.take()
    one.limited.wait_for_place("client", one.waiting("a"))
    one.limited.give_back()
    assert not one.limited.take()
    await turns()
    assert one.said == ["a"]


async def test_clients_take_turns() -> None:
    one = One(max_commands=1)
    assert one.limited.take()
    for number in range(5):
        one.limited.wait_for_place("many", one.waiting(f"many {number}"))
    one.limited.wait_for_place("few", one.waiting("few"))
    for _ in range(2):
        one.limited.give_back()
        await turns()
    assert "few" in one.said
    one.limited.configure(EffectiveLimits())
    await turns()


async def test_a_queue_is_bounded_in_length_and_time() -> None:
    one = One(max_commands=1, max_waiting=2, max_wait_ms=30)
    assert one.limited.take()
    for name in "abc":
        one.limited.wait_for_place("client", one.waiting(name))
    assert one.said == ["c refused"]
    await eventually(lambda: len(one.said) >= 3)
    assert sorted(one.said) == ["a refused", "b refused", "c refused"]
    assert one.counts.waiting_commands == 0
    one.limited.give_back()
    await turns()
    assert one.limited.is_idle


async def test_who_disconnects_leaves_the_queue() -> None:
    one = One(max_commands=1)
    assert one.limited.take()
    first, second = one.waiting("first"), one.waiting("second")
    one.limited.wait_for_place("client", first)
    one.limited.wait_for_place("client", second)
    first.exchange.abandon()
    assert one.counts.waiting_commands == 1
    one.limited.give_back()
    await turns()
    assert one.said == ["second"]
    assert second.exchange.on_abandon is None


async def test_commands_may_occupy_more_than_there_is() -> None:
    one = One(max_commands=1)
    assert one.limited.take()
    one.limited.occupy()
    assert one.limited.running == 2
    one.limited.wait_for_place("client", one.waiting("a"))
    one.limited.give_back()
    await turns()
    assert one.said == []
    one.limited.give_back()
    await turns()
    assert one.said == ["a"]


async def test_measurements_wait_for_their_rate() -> None:
    one = One(max_measurements_per_second=100)
    assert one.limited.pay(60)
    assert one.limited.pay(40)
    assert not one.limited.pay(10)
    loop = asyncio.get_running_loop()
    since = loop.time()
    one.limited.wait_for_rate("client", one.waiting("a", 10))
    one.limited.wait_for_rate("client", one.waiting("b", 20))
    assert not one.limited.pay(1)
    assert one.counts.waiting_inserts == 2
    await eventually(lambda: len(one.said) >= 2)
    assert one.said == ["a", "b"]
    assert 0.29 < loop.time() - since < 2.0
    assert one.counts.waiting_inserts == 0


async def test_waiting_inserts_are_bounded_too() -> None:
    one = One(max_measurements_per_second=10, max_waiting=1, max_wait_ms=20)
    assert one.limited.pay(100)
    one.limited.wait_for_rate("client", one.waiting("a"))
    one.limited.wait_for_rate("client", one.waiting("b"))
    assert one.said == ["b refused"]
    await eventually(lambda: len(one.said) >= 2)
    assert one.said == ["b refused", "a refused"]
    assert not one.limited.is_idle


def test_connections_above_the_limit_are_refused() -> None:
    one = One(max_connections=2)
    one.limited.connect()
    one.limited.connect()
    with pytest.raises(CommandError) as raised:
        one.limited.connect()
    assert (raised.value.code, raised.value.labels) == (OVERLOADED, LABELS)
    assert "ann@admin" in raised.value.message
    assert (one.counts.connections, one.counts.refused["connections"]) == (2, 1)
    one.limited.disconnect()
    one.limited.connect()
    assert one.counts.connections == 2


async def test_new_limits_let_go_on_what_waits() -> None:
    one = One(max_commands=1, max_measurements_per_second=1)
    assert one.limited.take()
    assert one.limited.pay(100)
    one.limited.wait_for_place("client", one.waiting("command"))
    one.limited.wait_for_rate("client", one.waiting("insert"))
    one.limited.configure(EffectiveLimits())
    await turns()
    assert sorted(one.said) == ["command", "insert"]


def book(users: dict[str, UserLimits], databases: dict[str, DatabaseLimits]) -> LimitBook:
    made = LimitBook(LimitNumbers())
    made.configure(users, databases)
    return made


def test_users_and_databases_are_found_by_name() -> None:
    limits = book({"ann@admin": UserLimits(max_commands=1)}, {"*": DatabaseLimits(max_commands=2)})
    ann = limits.user(ANN)
    assert ann is not None
    assert limits.user(ANN) is ann
    assert (limits.user(BOB), limits.user(NOBODY)) == (None, None)
    weather = limits.database("weather")
    assert weather is not None
    assert weather.limits.max_commands == 2
    assert limits.database("admin") is None
    assert book({}, {"admin": DatabaseLimits(max_commands=1)}).database("admin") is not None


def test_users_whose_joined_names_are_equal_have_limits_of_their_own() -> None:
    """The setting means the user of the database behind the last @."""
    book = LimitBook(LimitNumbers())
    book.configure({"a@b@c": UserLimits(max_commands=1), EVERYONE: UserLimits(max_commands=2)}, {})
    one, other = book.user(identity_of([("a@b", "c")])), book.user(identity_of([("a", "b@c")]))
    assert one is not None
    assert other is not None
    assert one is not other
    assert (one.limits.max_commands, other.limits.max_commands) == (1, 2)


def test_nothing_is_asked_without_limits() -> None:
    limits = book({}, {})
    assert not limits.limits_anything
    assert (limits.user(ANN), limits.database("weather")) == (None, None)
    assert not book({"*": UserLimits(max_waiting=3)}, {}).limits_anything
    assert len(limits) == 0


async def test_names_that_are_not_in_use_are_forgotten() -> None:
    limits = book({}, {"*": DatabaseLimits(max_commands=2)})
    kept = limits.database("kept")
    assert kept is not None
    assert kept.take()
    for number in range(10_000):
        limits.database(f"database {number}")
    assert len(limits) < 1_000
    assert limits.database("kept") is kept


def test_labels_of_metrics_are_names_of_the_settings() -> None:
    numbers = LimitNumbers()
    numbers.shows_names = True
    limits = LimitBook(numbers)
    limits.configure({"*": UserLimits(max_commands=2), "ann@admin": UserLimits(max_commands=1)}, {})
    (connections, *_) = numbers.collect()
    assert {sample.labels["name"]: sample.value for sample in connections.samples} == {"ann@admin": 0, "*": 0}
    for identity in (ANN, BOB, identity_of([("eve", "admin")])):
        user = limits.user(identity)
        assert user is not None
        assert user.take()
    (commands,) = [family for family in numbers.collect() if family.name == "tsproxy_limited_commands"]
    assert {sample.labels["name"]: sample.value for sample in commands.samples} == {"ann@admin": 1, "*": 2}


def test_connections_are_counted_from_login_to_logout_or_end() -> None:
    limits = book({"ann@admin": UserLimits(max_connections=1)}, {})
    one, two = session(ANN), session(ANN)
    two.connection_id = 2
    limits.identified(one)
    limits.identified(one)
    with pytest.raises(CommandError):
        limits.identified(two)
    limits.left(two)
    one.identity = NOBODY
    limits.identified(one)
    limits.identified(two)
    one.identity = ANN
    with pytest.raises(CommandError):
        limits.identified(one)
    two.identity = BOB
    limits.identified(two)
    limits.identified(one)
    limits.left(one)
    limits.left(one)
    ann = limits.user(ANN)
    assert ann is not None
    assert ann.connections == 0
