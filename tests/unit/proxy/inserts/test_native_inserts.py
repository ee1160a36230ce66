"""Which inserts the backend carries out itself: those that the strategy says, but for retries and distant times."""

from __future__ import annotations

import bson
import pytest

from catalog.commit.restart_dedup import RestartDedup
from catalog.commit.statements import StatementLog
from catalog.commit.tenure import Search, SessionKey
from catalog.namespaces import VirtualCollection
from proxy.inserts.native_inserts import LARGE_BYTES, NativeInserts, Tried
from proxy.inserts.write_strategy import FEWEST_BYTES, InsertPath, Mode, WriteStrategy
from proxy.request.exchange import Exchange
from proxy.wire.message import Message
from tests.support.catalog_parts import CatalogBench
from tests.support.committer_bench import ScriptedStore
from tests.support.exchanges import Told
from tests.support.insert_messages import message
from tests.support.network import FakeClient
from tests.support.sessions import session

DOCUMENT = bson.encode({"t": bson.DatetimeMS(5000), "m": 1, "text": "x" * FEWEST_BYTES})
DISTANT = bson.encode({"t": bson.DatetimeMS(-1), "m": 1})
SESSION = b"a session"
CLIENT = (SESSION, session().identity)


def clock() -> float:
    return 0.0


class Inserts:
    """With the way that a test chooses."""

    def __init__(self, *, window_seconds: float = 0.0) -> None:
        bench = CatalogBench()
        self.statements = StatementLog()
        self.collection = bench.virtual
        dedup = RestartDedup(ScriptedStore(), bench.clock, window_seconds, 1.0, lambda work: work.close())
        self._natives = {
            InsertPath.NATIVE: NativeInserts(WriteStrategy("native", clock), self.statements, dedup),
            # What was never measured goes through the catalog.
            InsertPath.CATALOG: NativeInserts(WriteStrategy("auto", clock), self.statements, dedup),
        }
        self.chosen = InsertPath.NATIVE

    @staticmethod
    def exchange() -> Exchange:
        return Exchange(session(), FakeClient(), Message.from_bytes(message()), Told())

    @property
    def chosen_one(self) -> NativeInserts:
        return self._natives[self.chosen]

    def takes(self, *documents: bytes, txn_number: int | None = None, ordered: bool = True) -> int:
        exchange, native, data = self.exchange(), self.chosen_one, b"".join(documents)
        count = native.takes(
            exchange, self.collection, len(data), (b"before" + data,), 6, SESSION, txn_number, ordered=ordered
        )
        assert (
            native.takes(exchange, self.collection, len(data), list(documents), 0, SESSION, txn_number, ordered=ordered)
            == count
        )
        return count


def test_the_strategy_decides() -> None:
    inserts = Inserts()
    assert inserts.takes(DOCUMENT, DOCUMENT) == 2
    inserts.chosen = InsertPath.CATALOG
    assert inserts.takes(DOCUMENT, DOCUMENT) == 0


@pytest.mark.parametrize("other", [DISTANT, bson.encode({"m": 1}), bson.encode({"t": "noon"})])
def test_what_the_catalog_has_to_see_goes_there(other: bytes) -> None:
    inserts = Inserts()
    assert inserts.takes(DOCUMENT, other, txn_number=4) == 0
    assert inserts.statements.latest(CLIENT) is None


def test_retry_takes_the_way_of_the_first_try() -> None:
    """Whatever the strategy says by then: only there it is known that the statements were executed."""
    inserts = Inserts()
    assert inserts.takes(DOCUMENT, txn_number=4) == 1
    inserts.chosen = InsertPath.CATALOG
    assert inserts.takes(DOCUMENT, txn_number=4) == 1
    assert inserts.takes(DOCUMENT, txn_number=5) == 0
    inserts.statements.transaction(CLIENT, 5).written.add(0)
    inserts.chosen = InsertPath.NATIVE
    assert inserts.takes(DOCUMENT, txn_number=5) == 0
    assert inserts.takes(DOCUMENT, txn_number=6) == 1


def test_number_that_is_too_old_is_refused_by_the_catalog() -> None:
    inserts = Inserts()
    assert inserts.takes(DOCUMENT, txn_number=4) == 1
    assert inserts.takes(DOCUMENT, txn_number=3) == 0


def test_first_insert_of_a_session_after_the_start_may_be_a_retry() -> None:
    """Only the catalog looks up what an earlier process has staged."""
    inserts = Inserts(window_seconds=60.0)
    assert inserts.takes(DOCUMENT, txn_number=4) == 0
    assert inserts.takes(DOCUMENT) == 1
    inserts.statements.transaction(CLIENT, 4)
    assert inserts.takes(DOCUMENT, txn_number=5) == 1


class Coalescing(Inserts):
    """Where inserts that are not relayed are coalesced."""

    def __init__(self, mode: Mode = "auto") -> None:
        super().__init__()
        self.may_insert = True
        """Whether the proxy's account may."""
        dedup = RestartDedup(ScriptedStore(), CatalogBench().clock, 60.0, 1.0, lambda work: work.close())
        self.native = NativeInserts(WriteStrategy(mode, clock), self.statements, dedup, lambda _: self.may_insert)
        self.native.coalesce(is_on=True)
        self._natives[InsertPath.NATIVE] = self.native


EMPTY_META = bson.encode({"t": bson.DatetimeMS(5000), "m": bson.Timestamp(0, 0)})
SMALL = bson.encode({"t": bson.DatetimeMS(5000), "m": 1})


@pytest.mark.parametrize(
    ("documents", "ordered", "count"),
    [
        ((SMALL,), True, 0),
        ((SMALL, SMALL), False, 0),
        # Only the server stops at the first error.
        ((SMALL, SMALL), True, 2),
        ((SMALL,) * (LARGE_BYTES // len(SMALL) + 1), False, LARGE_BYTES // len(SMALL) + 1),
        # W37: an unordered insert stores the current time instead.
        ((EMPTY_META,), True, 1),
        ((EMPTY_META,), False, 0),
        # The server says what is wrong.
        ((DISTANT,), True, 0),
        ((SMALL, bson.encode({})), True, 2),
    ],
)
def test_small_inserts_are_coalesced_unless_their_order_counts(
    documents: tuple[bytes, ...], ordered: bool, count: int
) -> None:
    inserts = Coalescing()
    assert inserts.native.fewest_bytes == 1
    assert inserts.takes(*documents, ordered=ordered) == count
    inserts.native.coalesce(is_on=False)
    assert inserts.takes(*documents, ordered=ordered) == 0


@pytest.mark.parametrize("documents", [(SMALL, SMALL), (DISTANT, SMALL), (SMALL, bson.encode({}))])
def test_w102_what_was_relayed_is_relayed_again_when_nothing_is_coalesced_any_more(
    documents: tuple[bytes, ...],
) -> None:
    """However small it is, and whatever the catalog would have to see: only the backend knows what it has executed."""
    inserts = Coalescing()
    distant: list[VirtualCollection] = []
    inserts.native.relays_distant_times = distant.append
    inserts.statements.transaction(CLIENT, 3).written.add(0)
    assert inserts.takes(*documents, txn_number=4) == 2
    inserts.native.coalesce(is_on=False)
    assert inserts.native.fewest_bytes == 1
    assert inserts.takes(*documents, txn_number=4) == 2
    assert bool(distant) == (documents != (SMALL, SMALL))
    assert inserts.takes(*documents, txn_number=5) == 0


def test_w102_what_another_process_has_relayed_may_be_sent_again() -> None:
    inserts = Inserts()
    inserts.chosen = InsertPath.CATALOG
    native = inserts.chosen_one
    assert native.fewest_bytes == FEWEST_BYTES
    native.begin(inserts.exchange(), inserts.collection, 1, len(SMALL))
    assert native.fewest_bytes == len(SMALL)


def test_where_the_setting_wants_native_inserts_none_are_coalesced() -> None:
    assert Coalescing("native").takes(SMALL) == 1


def test_what_the_account_may_not_insert_is_up_to_the_client() -> None:
    inserts = Coalescing()
    inserts.may_insert = False
    assert inserts.takes(SMALL) == 1


@pytest.mark.parametrize("damaged", [b"\x05\0\0", b"\xff\xff\xff\x7f" + bytes(10), bytes(8)])
def test_what_are_no_documents_is_not_relayed_without_parsing(damaged: bytes) -> None:
    inserts = Coalescing()
    count = inserts.native.takes(
        inserts.exchange(), inserts.collection, len(damaged), (damaged,), 0, SESSION, None, ordered=True
    )
    assert count == 0


def test_w102_a_coalesced_statement_is_not_relayed_later_nor_the_other_way_round() -> None:
    inserts = Coalescing()
    assert inserts.takes(SMALL, txn_number=4) == 0
    inserts.statements.transaction(CLIENT, 4).written.add(0)
    inserts.may_insert = False
    assert inserts.takes(SMALL, txn_number=4) == 0
    inserts.may_insert = True
    assert inserts.takes(SMALL, SMALL, txn_number=5) == 2
    assert inserts.takes(SMALL, txn_number=5) == 1
    inserts.native.relayed(CLIENT[1], 2, SESSION, 6)
    assert inserts.takes(SMALL, txn_number=6) == 1
    inserts.native.relayed(CLIENT[1], 2, SESSION, 5)
    assert inserts.statements.transaction(CLIENT, 6).is_native


def test_w102_what_was_only_asked_about_may_take_any_way() -> None:
    inserts = Inserts()
    for number, chosen in ((1, InsertPath.NATIVE), (2, InsertPath.CATALOG)):
        inserts.chosen = chosen
        inserts.statements.transaction(CLIENT, number)
        assert inserts.takes(DOCUMENT, txn_number=number) == (1 if chosen is InsertPath.NATIVE else 0)


def test_w102_what_has_to_be_looked_up_goes_through_the_catalog() -> None:
    inserts = Inserts()
    inserts.statements.transaction(CLIENT, 1).take(1.0, Search.SOUGHT)
    assert inserts.takes(DOCUMENT, txn_number=1) == 0
    inserts.statements.transaction(CLIENT, 2).learn([], [], is_native=True, is_sought=True)
    assert inserts.takes(DOCUMENT, txn_number=2) == 1
    # The backend does not refuse what is relayed because of fences.
    inserts.statements.transaction(CLIENT, 3).take(1.0, Search.FENCED)
    assert inserts.takes(DOCUMENT, txn_number=3) == 0


@pytest.mark.parametrize("documents", [(DOCUMENT, DOCUMENT), (SMALL,) * (LARGE_BYTES // len(SMALL) + 1)])
def test_w102_what_has_to_be_looked_up_is_not_relayed_before(documents: tuple[bytes, ...]) -> None:
    """The backend has no record of what was stored in buckets, or coalesced."""
    inserts = Coalescing()
    inserts.statements.transaction(CLIENT, 1).take(1.0, Search.SOUGHT)
    assert inserts.takes(*documents, txn_number=1) == 0
    inserts.may_insert = False
    assert inserts.takes(*documents, txn_number=1) == len(documents)


def test_w102_who_has_tried_a_statement() -> None:
    inserts = Coalescing()

    def tried(client: SessionKey, number: int | None) -> Tried:
        return inserts.native.tried(client, number, inserts.collection)

    assert tried(CLIENT, None) is Tried.NOBODY
    assert tried(CLIENT, -1) is Tried.HERE
    assert tried(CLIENT, 4) is Tried.PERHAPS  # the first of its session after the start
    inserts.statements.transaction(CLIENT, 4).written.add(0)
    assert [tried(CLIENT, number) for number in (3, 4, 5)] == [Tried.HERE, Tried.HERE, Tried.NOBODY]
    inserts.statements.transaction(CLIENT, 5).is_native = True
    assert [tried(CLIENT, number) for number in (4, 5)] == [Tried.HERE, Tried.BACKEND]
    for number, search in ((6, Search.SOUGHT), (7, Search.FENCED)):
        inserts.statements.transaction(CLIENT, number).take(1.0, search)
        assert tried(CLIENT, number) is Tried.PERHAPS
