from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64

from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from proxy.request import router
from proxy.request.command import Command, parse_command
from proxy.request.command_table import TABLE
from proxy.wire.message import Message
from rewrite.plan import ClearBuckets, ForgetNamespace
from tests.support.raw_wire import command

OPTIONS = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)
VIRTUAL = VirtualCollection(Namespace("d", "ts"), OPTIONS)
ALL = frozenset(TABLE)


def lookup(namespace: Namespace) -> VirtualCollection | router.Unresolved | None:
    if namespace.database == "new":
        return router.UNRESOLVED
    return VIRTUAL if namespace == VIRTUAL.namespace else None


def routed(document: dict[str, Any], translated: frozenset[str] = ALL, *, knows_cursor: bool = False) -> router.Route:
    parsed: Command = parse_command(Message.from_bytes(command({**document, "$db": document.get("$db", "d")})))
    return router.route(parsed, lookup, translated, lambda _: knows_cursor)


def test_insert_into_a_virtual_collection_goes_to_the_catalog() -> None:
    assert routed({"insert": "ts"}) == router.Ingest(VIRTUAL)
    assert routed({"insert": "c"}) == router.RELAY


def test_insert_in_a_transaction_is_refused_by_the_backend_itself() -> None:
    """X1: the error must abort the transaction that the backend holds."""
    assert isinstance(routed({"insert": "ts", "autocommit": False}), router.Relay)


@pytest.mark.parametrize("name", ["find", "aggregate", "count", "distinct", "update", "delete", "drop", "collMod"])
def test_commands_on_a_virtual_collection_are_translated(name: str) -> None:
    assert routed({name: "ts"}) == router.Translate(VIRTUAL)
    assert isinstance(routed({name: "c"}), router.Relay)
    assert isinstance(routed({name: "ts"}, frozenset()), router.Relay)


@pytest.mark.parametrize("name", ["insert", "find", "delete"])
def test_what_every_server_refuses_is_relayed_and_not_recognised_by_its_bytes(name: str) -> None:
    """Well-formed commands may have the same ones but for the number."""
    route = routed({name: "ts", "lsid": {}, "txnNumber": Int64(-1)})
    assert isinstance(route, router.Relay)
    assert route is not router.RELAY


def test_explain_is_about_the_command_inside() -> None:
    assert routed({"explain": {"find": "ts"}}) == router.Translate(VIRTUAL)
    assert routed({"explain": {"find": "c"}}) == router.RELAY
    assert routed({"explain": {"aggregate": 1}}) == router.Translate(None)
    for other in ({}, [], "ts", {"find": {"a": "ts"}}, {"find": bson.Code("ts")}):
        assert routed({"explain": other}) == router.Translate(None)
    assert routed({"explain": {"find": "ts", "filter": {"a": ["x"] * 100_000}}}) == router.Translate(VIRTUAL)


@pytest.mark.parametrize("name", ["getMore", "killCursors"])
def test_cursors_of_translated_reads_are_known(name: str) -> None:
    assert routed({name: "ts"}) == router.RELAY
    assert routed({name: "ts"}, knows_cursor=True) == router.Translate(None)


def test_known_cursors_go_on_whatever_is_rewritten_now() -> None:
    more = {"getMore": bson.Int64(5), "collection": "ts"}
    assert routed(more, frozenset(), knows_cursor=True) == router.Translate(None)
    assert routed(more, frozenset()) == router.RELAY
    assert routed({**more, "$db": "new"}, frozenset()) == router.RELAY


def test_cursor_of_another_process_may_be_on_buckets_of_a_collection_that_is_not_known_yet() -> None:
    more = {"getMore": bson.Int64(5), "collection": "c"}
    assert routed({**more, "$db": "new"}) == router.Resolve(Namespace("new", "c"))
    assert routed(more) == router.RELAY
    for other in ("$cmd.aggregate", "system.profile", "", 5):
        assert routed({**more, "collection": other, "$db": "new"}) == router.RELAY
    assert routed({"killCursors": "c", "cursors": [], "$db": "new"}) == router.RELAY


def test_unknown_database_is_asked_for_first() -> None:
    assert routed({"find": "c", "$db": "new"}) == router.Resolve(Namespace("new", "c"))
    assert routed({"ping": 1, "$db": "new"}) == router.RELAY


@pytest.mark.parametrize("name", ["hello", "isMaster", "ismaster"])
def test_hello_is_answered_by_the_proxy(name: str) -> None:
    assert routed({name: 1}) == router.AnswerLocally()


@pytest.mark.parametrize("name", ["saslStart", "saslContinue", "logout"])
def test_logins_are_watched(name: str) -> None:
    assert routed({name: 1, "mechanism": "SCRAM-SHA-256"}) == router.Relay(changes_identity=True)


def test_what_may_redefine_a_collection_is_followed_by_effects() -> None:
    namespace = Namespace("d", "c")
    assert routed({"create": "c"}) == router.Relay((ClearBuckets(namespace), ForgetNamespace(namespace)))
    rename = routed({"renameCollection": "d.c", "to": "e.f", "$db": "admin"})
    assert isinstance(rename, router.Relay)
    assert ForgetNamespace(Namespace("e", "f")) in rename.effects
    assert ForgetNamespace(Namespace("d", "c")) in rename.effects


@pytest.mark.parametrize("name", ["createIndexes", "dropIndexes", "deleteIndexes"])
def test_other_indexes_are_looked_up(name: str) -> None:
    """They decide how the latest measurements are asked for (Q23); what is stored stays the same."""
    assert routed({name: "ts"}, ALL - {name}) == router.Relay((ForgetNamespace(VIRTUAL.namespace),))
    assert routed({name: "c"}, ALL - {name}) == router.RELAY


def test_create_of_a_time_series_collection_is_translated() -> None:
    assert routed({"create": "c", "timeseries": {"timeField": "t"}}) == router.Translate(None)


@pytest.mark.parametrize("name", ["insert", "update", "delete", "findAndModify"])
def test_direct_writes_to_buckets_clear_what_the_catalog_holds(name: str) -> None:
    """U6."""
    route = routed({name: VIRTUAL.buckets.collection})
    assert isinstance(route, router.Relay)
    assert ClearBuckets(VIRTUAL.namespace) in route.effects


def test_reads_of_buckets_are_relayed() -> None:
    assert routed({"find": VIRTUAL.buckets.collection}) == router.RELAY


def test_unknown_commands_are_relayed() -> None:
    """The backend says what is unknown."""
    assert routed({"nope": "ts"}) == router.RELAY


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"drop": "ts"}, router.RELAY),
        ({"insert": "ts"}, router.RELAY),
        ({"unheard_of": 1}, router.RELAY),
        ({"hello": 1}, router.AnswerLocally()),
        ({"saslStart": 1, "mechanism": "SCRAM-SHA-256"}, router.Relay(changes_identity=True)),
    ],
    ids=str,
)
def test_strangers_only_greet_and_log_in(document: dict[str, Any], expected: router.Route) -> None:
    parsed = parse_command(Message.from_bytes(command({**document, "$db": "d"})))
    assert router.route_before_login(parsed) == expected
