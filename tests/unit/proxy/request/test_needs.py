"""What commands need on each route, and that nothing begins without it."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Int64

from catalog.namespaces import Namespace
from proxy.request import router
from proxy.request.command import parse_command
from proxy.request.needs import Needs
from proxy.wire.message import Message
from tests.support.raw_wire import command
from tests.support.recognising import Recognising
from tests.support.scopes import TARGET

NAME = TARGET.namespace
READS = ((("find",), NAME), (("find",), NAME.buckets))


def needs(document: dict[str, Any], route: router.Route, *, has_members: bool = False) -> Needs:
    parsed = parse_command(Message.from_bytes(command({**document, "$db": "db"})))
    return Recognising(has_members=has_members).requirements.of(parsed, route)


@pytest.mark.parametrize(
    ("document", "route", "namespace", "rights", "reads"),
    [
        ({"insert": "x"}, router.Ingest(TARGET), NAME, ((("insert",), NAME),), False),
        (
            {"insert": "x", "bypassDocumentValidation": True},
            router.Ingest(TARGET),
            NAME,
            ((("insert", "bypassDocumentValidation"), NAME),),
            False,
        ),
        ({"find": "x"}, router.Translate(TARGET), NAME, READS, True),
        ({"update": "x"}, router.Translate(TARGET), None, (), True),
        ({"getMore": Int64(5)}, router.Translate(None), None, (), True),
        ({"find": "x"}, router.RELAY, NAME, (), True),
        ({"insert": "x"}, router.RELAY, NAME, (), False),
        ({"aggregate": 1}, router.RELAY, None, (), True),
        ({"ping": 1}, router.RELAY, None, (), False),
        ({"hello": 1}, router.AnswerLocally(), None, (), False),
    ],
    ids=str,
)
def test_needs_follow_the_route(
    document: dict[str, Any], route: router.Route, namespace: Namespace | None, rights: Any, reads: bool
) -> None:
    found = needs(document, route)
    assert (found.namespace, found.rights, found.reader is not None) == (namespace, rights, reads)
    assert found.collection == (None if namespace is None or isinstance(route, router.Relay) else TARGET)


@pytest.mark.parametrize(
    ("document", "asks"),
    [
        ({"find": "x"}, False),
        ({"find": "x", "$readPreference": {"mode": "nearest"}}, True),
        ({"update": "x", "$readPreference": {"mode": "nearest"}}, False),
        ({"getMore": Int64(5)}, True),
        ({"killCursors": "x", "cursors": []}, True),
    ],
    ids=str,
)
def test_members_are_asked_for_what_may_be_elsewhere(document: dict[str, Any], asks: bool) -> None:
    assert needs(document, router.RELAY, has_members=True).asks_members == asks
    assert not needs(document, router.RELAY).asks_members


def test_nothing_begins_on_a_collection_that_is_another() -> None:
    rooms = Recognising()
    wanted = Needs(NAME, TARGET)
    for rooms.found in (None, router.UNRESOLVED):
        assert not rooms.requirements.are_met(rooms.session, wanted)
    rooms.found = TARGET
    assert rooms.requirements.are_met(rooms.session, wanted)
    assert not rooms.requirements.are_met(rooms.session, Needs(NAME))
    assert rooms.requirements.are_met(rooms.session, Needs())


def test_rights_are_needed_or_at_least_a_login() -> None:
    rooms = Recognising()
    for rooms.allowed in (None, False):
        assert not rooms.requirements.are_met(rooms.session, Needs(rights=READS))
        assert rooms.requirements.rights(rooms.session, Needs(rights=READS)) is rooms.allowed
        assert rooms.requirements.are_met(rooms.session, Needs())
    rooms.stranger = True
    assert rooms.requirements.must_log_in(rooms.session)
    assert not rooms.requirements.are_met(rooms.session, Needs())


@pytest.mark.parametrize("allowed", [True, False])
async def test_rights_that_nobody_knows_are_asked_for(allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = Recognising()
    asked: list[Any] = []

    async def allows(session: Any, actions: tuple[str, ...], namespace: Namespace) -> bool:
        asked.append((actions, namespace))
        return allowed

    monkeypatch.setattr(rooms, "allows", allows)
    assert await rooms.requirements.asked_rights(rooms.session, Needs(rights=READS)) is allowed
    assert asked == list(READS if allowed else READS[:1])


def test_readers_wait_for_joins() -> None:
    rooms = Recognising()
    reading = Needs(reader=rooms.register.of_rewritten(NAME))
    assert rooms.requirements.are_met(rooms.session, reading)
    rooms.keep_out(NAME.database)
    assert not rooms.requirements.are_met(rooms.session, reading)
    assert rooms.requirements.are_met(rooms.session, Needs())
