"""Which member a read goes to, judged by the driver's own rules, and where cursors are continued."""

from __future__ import annotations

import datetime as dt
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId
from pymongo.hello import Hello
from pymongo.server_description import ServerDescription
from pymongo.topology_description import TOPOLOGY_TYPE, TopologyDescription

from catalog.errors import CommandError
from catalog.identity import NOBODY, Identity, identity_of
from proxy.members.joins_applied import JoinsApplied
from proxy.members.read_preference import MemberSelector
from proxy.request.command import Command, parse_command
from proxy.request.session import Session
from proxy.upstream.connection import Upstream
from proxy.upstream.dialing import Dialer
from proxy.wire import op_msg
from proxy.wire.message import Message

PRIMARY, SECONDARY = ("db1", 27017), ("db2", 27017)


def server(address: tuple[str, int], *, primary: bool, tags: dict[str, str] | None = None) -> ServerDescription:
    hello = {
        "ok": 1,
        "isWritablePrimary": primary,
        "secondary": not primary,
        "setName": "rs",
        "hosts": ["db1:27017", "db2:27017"],
        "minWireVersion": 0,
        "maxWireVersion": 17,
        "lastWrite": {"lastWriteDate": dt.datetime(2024, 1, 1)},  # noqa: DTZ001
        "tags": tags or {},
    }
    return ServerDescription(address, Hello(hello), 0.001)


def topology(*servers: ServerDescription) -> TopologyDescription:
    known = {each.address: each for each in servers}
    return TopologyDescription(TOPOLOGY_TYPE.ReplicaSetWithPrimary, known, "rs", None, ObjectId(), _Settings())


class _Settings:
    local_threshold_ms = 15
    heartbeat_frequency = 10
    server_selector = None


def members(*servers: ServerDescription, joins: JoinsApplied | None = None) -> MemberSelector:
    def dialer_to(address: Any) -> Dialer:
        async def at() -> tuple[str, int]:
            return address[0], address[1]

        return Dialer(at, None, 1.0)

    return MemberSelector(lambda: topology(*servers), dialer_to, joins)


def session(identity: Identity = NOBODY) -> Session:
    async def nowhere() -> tuple[str, int]:
        raise AssertionError

    return Session(1, "peer", Upstream(Dialer(nowhere, None, 1.0), lambda: None), identity)


def command(body: dict[str, Any]) -> Command:
    return parse_command(Message.from_bytes(op_msg.build(1, 0, bson.encode({**body, "$db": "app"}))))


def find(mode: str, **more: Any) -> Command:
    return command({"find": "x", "$readPreference": {"mode": mode, **more}})


BOTH = (server(PRIMARY, primary=True), server(SECONDARY, primary=False, tags={"dc": "east"}))


def test_secondary_reads_get_a_session_at_the_secondary() -> None:
    own, where = session(), members(*BOTH)
    first = where.session_for(own, find("secondary"))
    assert first.member == SECONDARY
    assert first.upstream is not own.upstream
    assert where.session_for(own, find("secondaryPreferred", tags=[{"dc": "east"}])) is first


@pytest.mark.parametrize(
    "body",
    [
        {"find": "x"},
        {"find": "x", "$readPreference": {"mode": "primary"}},
        {"find": "x", "$readPreference": {"mode": "primaryPreferred"}},
        {"find": "x", "$readPreference": {"mode": "nonsense"}},
        {"find": "x", "$readPreference": 5},
        {"find": "x", "$readPreference": {"mode": "secondary"}, "autocommit": False, "txnNumber": Int64(1)},
        {"insert": "x", "$readPreference": {"mode": "secondary"}},
        {"aggregate": "x", "pipeline": [{"$out": "y"}], "$readPreference": {"mode": "secondary"}},
    ],
    ids=str,
)
def test_all_else_stays_with_the_primary(body: dict[str, Any]) -> None:
    own = session()
    assert members(*BOTH).session_for(own, command(body)) is own


def test_logged_in_clients_stay_with_the_primary() -> None:
    own = session(identity_of([("reader", "app")]))
    assert members(*BOTH).session_for(own, find("secondary")) is own


def test_set_without_secondaries_reads_from_its_primary() -> None:
    own = session()
    assert members(BOTH[0]).session_for(own, find("secondary")) is own


def test_tags_that_nobody_has_are_an_error() -> None:
    with pytest.raises(CommandError, match="matching read preference") as refused:
        members(*BOTH).session_for(session(), find("secondary", tags=[{"dc": "west"}]))
    assert refused.value.code == 133


def test_cursor_is_continued_where_it_was_opened_over_any_connection() -> None:
    where = members(*BOTH)
    there = where.session_for(session(), find("secondary"))
    where.record_cursor(there, bson.encode({"cursor": {"id": Int64(77), "ns": "app.x", "firstBatch": []}, "ok": 1}))
    another = session()
    assert where.session_for(another, command({"getMore": Int64(77), "collection": "x"})).member == SECONDARY
    assert where.session_for(another, command({"killCursors": "x", "cursors": [Int64(77)]})).member == SECONDARY
    assert where.session_for(another, command({"getMore": Int64(78), "collection": "x"})) is another


def test_staleness_that_no_set_can_promise_is_an_error() -> None:
    with pytest.raises(CommandError) as refused:
        members(*BOTH).session_for(session(), find("secondary", maxStalenessSeconds=1))
    assert refused.value.code == 160


def test_cursor_is_sought_where_the_primary_was() -> None:
    own, where = session(), members(*BOTH)
    more = command({"getMore": Int64(5), "collection": "x"})
    assert not where.has_former_primaries
    where.was_primary(SECONDARY)
    where.was_primary(("gone", 1))
    assert where.has_former_primaries
    assert where.session_for(own, more) is own
    assert where.seek_cursor(own, more)
    there = where.session_for(own, more)
    assert there.member == SECONDARY
    assert there.home is own
    assert not where.seek_cursor(there, more), "nowhere else"
    assert where.session_for(own, more) is own


def test_cursor_of_a_login_is_not_sought() -> None:
    own, where = session(identity_of([("reader", "app")])), members(*BOTH)
    own.upstream.is_bound = True
    where.was_primary(SECONDARY)
    assert not where.seek_cursor(own, command({"getMore": Int64(5), "collection": "x"}))


def test_member_that_does_not_answer_is_avoided() -> None:
    own, where = session(), members(*BOTH)
    away = where.session_for(own, find("secondary"))
    where.avoid(away)
    assert where.is_avoided(SECONDARY)
    assert where.session_for(own, find("secondary")) is own


@pytest.mark.parametrize("is_far_behind", [False, True])
async def test_the_first_read_after_a_join_waits_for_its_member(is_far_behind: bool) -> None:
    """One that is too far behind is left for a while; the primary answers meanwhile."""
    joins = ScriptedJoins(applied=not is_far_behind)
    own, where = session(), members(*BOTH, joins=joins)
    away = where.session_for(own, find("secondary"))
    assert not where.may_meet_joins(own, find("secondary"))
    assert where.may_meet_joins(away, find("secondary"))
    assert not where.may_meet_joins(away, command({"getMore": Int64(5), "collection": "x"}))
    assert await where.past_joins(away, find("secondary")) is (own if is_far_behind else away)
    assert where.is_avoided(SECONDARY) is is_far_behind
    assert where.may_meet_joins(away, find("secondary")) is is_far_behind


class ScriptedJoins(JoinsApplied):
    """A member has the joins, or does not get them in time."""

    def __init__(self, *, applied: bool) -> None:
        self._applied = applied
        self._known: set[Any] = set()  # type: ignore[assignment]

    def are_certain(self, member: Any, database: str) -> bool:
        return (member, database) in self._known

    async def awaited(self, session: Session, database: str) -> bool:
        if self._applied:
            self._known.add((session.member, database))
        return self._applied
