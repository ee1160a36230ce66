from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from proxy.inserts.insert_rates import InsertRates
from proxy.inserts.insert_templates import InsertTemplate
from proxy.observe.limit_numbers import LimitNumbers
from proxy.request.exchange import Exchange
from proxy.request.limited import LABELS, OVERLOADED, LimitBook
from proxy.settings.limits import DatabaseLimits
from proxy.wire.message import Message
from tests.support.eventually import eventually
from tests.support.exchanges import Told
from tests.support.insert_messages import DOCUMENTS, message, remembering
from tests.support.network import FakeClient
from tests.support.raw_wire import document_of
from tests.support.sessions import session


class Place:
    def __init__(self) -> None:
        self.left = 0

    def leave(self) -> None:
        self.left += 1


class Rated:
    """Inserts into the database ``d``."""

    def __init__(self, limits: DatabaseLimits, name: str = "d") -> None:
        book = LimitBook(LimitNumbers())
        book.configure({}, {name: limits})
        self.rates = InsertRates(book)
        found = remembering(message(DOCUMENTS[0])).find(message(DOCUMENTS[0]))
        assert found is not None
        self.template = found.template
        self.staged: list[tuple[Exchange, int]] = []

    def insert(self, count: int, peer: str = "peer") -> Exchange:
        client = session()
        client.peer = peer
        exchange = Exchange(client, FakeClient(), Message.from_bytes(message(DOCUMENTS[0])), Told())
        exchange.place = Place()
        documents = DOCUMENTS[:1] * count
        if not self.rates.holds(exchange, self.template, documents, b"", None, self.stage):
            self.stage(exchange, self.template, documents, b"", None)
        return exchange

    def stage(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
    ) -> None:
        assert template is self.template
        self.staged.append((exchange, len(documents)))


async def test_inserts_above_the_rate_wait() -> None:
    rated = Rated(DatabaseLimits(max_measurements_per_second=100))
    loop = asyncio.get_running_loop()
    since = loop.time()
    exchanges = [rated.insert(10) for _ in range(14)]
    assert len(rated.staged) == 10
    assert exchanges[9].place is not None
    assert exchanges[10].place is None, "who waits occupies nothing"
    await eventually(lambda: len(rated.staged) >= 14)
    assert 0.39 < loop.time() - since < 2.0
    assert [exchange for exchange, _ in rated.staged] == exchanges


async def test_others_are_not_rated() -> None:
    rated = Rated(DatabaseLimits(max_measurements_per_second=1), name="other")
    for _ in range(100):
        rated.insert(100)
    assert len(rated.staged) == 100


async def test_small_writers_do_not_wait_for_large_ones() -> None:
    rated = Rated(DatabaseLimits(max_measurements_per_second=1_000))
    rated.insert(1_000)
    for _ in range(5):
        rated.insert(500, "large")
    small = [rated.insert(1, "small") for _ in range(5)]
    await eventually(lambda: len(rated.staged) >= 7)
    assert {exchange for exchange, _ in rated.staged} >= set(small)


async def test_who_has_waited_too_long_is_refused() -> None:
    rated = Rated(DatabaseLimits(max_measurements_per_second=10, max_wait_ms=30, max_waiting=1))
    rated.insert(1_000)
    waits, refused = rated.insert(1), rated.insert(1)
    for exchange in (refused, waits):
        client = exchange.client
        assert isinstance(client, FakeClient)
        await eventually(partial(len, client.written))
        reply = document_of(Message.from_bytes(client.written[0]))
        assert (reply["code"], tuple(reply["errorLabels"])) == (OVERLOADED, LABELS)
    assert len(rated.staged) == 1


async def test_who_leaves_is_not_staged() -> None:
    rated = Rated(DatabaseLimits(max_measurements_per_second=100))
    rated.insert(105)
    gone, stays = rated.insert(1), rated.insert(1)
    gone.abandon()
    await eventually(lambda: len(rated.staged) >= 2)
    assert rated.staged[1][0] is stays


def test_who_has_a_rate() -> None:
    rated, others = Rated(DatabaseLimits(max_measurements_per_second=1)), Rated(DatabaseLimits(max_commands=1))
    exchange = Exchange(session(), FakeClient(), Message.from_bytes(message(DOCUMENTS[0])), Told())
    assert rated.rates.concern(exchange, "d")
    assert not rated.rates.concern(exchange, "other")
    assert not others.rates.concern(exchange, "d")
