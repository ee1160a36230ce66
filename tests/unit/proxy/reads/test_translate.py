"""How plans are carried out; what the plans are is tested in tests/unit/rewrite."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import bson
import pytest
from bson import Int64

from catalog.errors import UUID_MISMATCH, BackendUnavailable, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.reads.cursor_names import CursorNames
from proxy.reads.plan_environment import PlanEnvironment
from proxy.reads.translate import ATTEMPTS, CLIENT_DISCONNECT, TranslateHandler
from proxy.request.command import parse_command
from proxy.request.session_fields import Undecodable
from proxy.request.times import Times
from proxy.upstream.connection import UpstreamLost
from proxy.wire.message import Message
from rewrite.plan import (
    GUESS_FAILED,
    PAUSE,
    ClearBuckets,
    Cursor,
    Dialogue,
    Document,
    Effect,
    ForgetNamespace,
    PassThrough,
    Pause,
    Plan,
    Single,
    Step,
    Via,
)
from rewrite.profile import Access, Profile
from tests.support.raw_wire import command
from tests.support.scopes import TARGET
from tests.support.scripted_session import Reply, ScriptedSession, ScriptedUpstream

STEP = Step("db", {"count": "system.buckets.x"})
OTHERWISE = Step("db", {"count": "x"})
CLEARED = ClearBuckets(TARGET.namespace)
UNAUTHORIZED: dict[str, Any] = {"ok": 0.0, "code": 13, "errmsg": "not authorized"}


class Translated:
    """A handler with one plan for every command, and a client."""

    def __init__(self, plan: Plan, *replies: Reply, service: tuple[Reply, ...] = (), allowed: bool = True) -> None:
        self.session = ScriptedSession(*replies)
        self.service = ScriptedUpstream(*service)
        self.effects: list[Effect] = []
        self.announced: list[Effect] = []
        self.asked_anew = 0
        self.found_anew: VirtualCollection | None = TARGET
        self.allowed = allowed
        self.asked_gate: list[tuple[str, ...]] = []
        self.cursors = CursorNames()
        self.profile = Profile()
        self.handler = TranslateHandler(
            PlanEnvironment(
                rewriters=dict.fromkeys(("count", "find", "delete", "update"), lambda _: plan),
                profile=lambda: self.profile,
                resolve=lambda named: TARGET if named == TARGET.namespace else None,
                resolve_anew=self._resolve_anew,
                catalog_stats=lambda _: {},
                service=self,
                take_effect=self.effects.append,
                announce=self._announce,
                cursors=self.cursors,
                gate=self,
                holds_extended_range=lambda _: True,
            )
        )

    async def _announce(self, effects: Sequence[Effect]) -> None:
        assert self.effects[-len(effects) :] == list(effects), "this process knows first"
        self.announced += effects

    async def _resolve_anew(self, namespace: Namespace) -> VirtualCollection | None:
        self.asked_anew += 1
        return self.found_anew

    async def run_raw(self, database: str, body: Mapping[str, Any]) -> bytes:
        return await self.service.run(database, body)

    async def allows(self, session: object, actions: tuple[str, ...], namespace: Namespace) -> bool:
        self.asked_gate.append(actions)
        return self.allowed

    async def reads_buckets(self, session: object, namespace: Namespace) -> bool:
        return True

    async def run(self, document: dict[str, Any]) -> dict[str, Any]:
        parsed = parse_command(Message.from_bytes(command({**document, "$db": "db"})))
        return bson.decode(await self.handler(self.session, parsed, TARGET, Times()))

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [body for _, body in self.session.upstream.asked]


def dialogue(*said: Step | Effect | Pause, reply: Document | PassThrough | None = None) -> Dialogue:
    def run() -> Generator[Step | Effect | Pause, Mapping[str, Any], Document | PassThrough]:
        last: Mapping[str, Any] = {}
        for each in said:
            last = (yield each) or last
        return dict(last) if reply is None else reply

    return Dialogue(run)


async def test_what_is_passed_on_goes_as_the_client_sent_it() -> None:
    world = Translated(PassThrough(), {"n": 2, "ok": 1.0})
    assert await world.run({"count": "x", "query": {"a": 1}}) == {"n": 2, "ok": 1.0}
    assert world.asked == [{"count": "x", "query": {"a": 1}}]


@pytest.mark.parametrize(
    ("reply", "effects"),
    [({"n": 1, "ok": 1.0}, [CLEARED]), ({"n": 0, "ok": 1.0}, []), ({"ok": 0.0, "code": 26}, [])],
)
async def test_effects_follow_what_may_have_changed_something(reply: dict[str, Any], effects: list[Effect]) -> None:
    world = Translated(PassThrough((CLEARED,)), reply)
    await world.run({"delete": "x", "deletes": []})
    assert world.effects == world.announced == effects


async def test_effects_follow_an_unknown_outcome() -> None:
    world = Translated(PassThrough((CLEARED,)), UpstreamLost("gone"))
    with pytest.raises(UpstreamLost):
        await world.run({"delete": "x", "deletes": []})
    assert world.effects == world.announced == [CLEARED]


async def test_one_step_is_reshaped_and_errors_are_not() -> None:
    plan = Single(STEP, reshape=lambda reply: {"n": reply["n"] + 1, "ok": 1.0}, effects=(CLEARED,))
    world = Translated(plan, {"n": 2, "ok": 1.0}, {"ok": 0.0, "code": 2, "errmsg": "bad"})
    assert await world.run({"count": "x"}) == {"n": 3, "ok": 1.0}
    assert world.effects == [CLEARED]
    assert (await world.run({"count": "x"}))["code"] == 2
    assert world.effects == [CLEARED]


async def test_a_guess_that_failed_is_followed_by_the_certain_step() -> None:
    world = Translated(
        Single(STEP, otherwise=lambda: OTHERWISE), {"ok": 0.0, "code": GUESS_FAILED}, {"n": 1, "ok": 1.0}
    )
    assert await world.run({"count": "x"}) == {"n": 1, "ok": 1.0}
    assert [body["count"] for body in world.asked] == ["system.buckets.x", "x"]


async def test_the_backend_words_what_the_client_may_not_do() -> None:
    world = Translated(Single(STEP), UNAUTHORIZED, {**UNAUTHORIZED, "errmsg": "not authorized on db"})
    assert (await world.run({"count": "x"}))["errmsg"] == "not authorized on db"
    assert world.asked[1] == {"count": "x"}


async def test_a_cursor_has_the_clients_name_and_is_remembered() -> None:
    reply = {"cursor": {"firstBatch": [], "id": Int64(9), "ns": "db.system.buckets.x"}, "ok": 1.0}
    world = Translated(Cursor(STEP, TARGET.namespace), reply)
    assert (await world.run({"find": "x"}))["cursor"]["ns"] == "db.x"
    assert world.cursors.backend_namespace(9) == TARGET.namespace.buckets


async def test_a_dialogue_runs_its_steps_over_the_account_of_their_kind() -> None:
    own = Step("db", {"update": "system.buckets.x"}, Via.SERVICE)
    world = Translated(dialogue(STEP, PAUSE, CLEARED, own), {"n": 1, "ok": 1.0}, service=({"n": 5, "ok": 1.0},))
    assert await world.run({"update": "x", "updates": []}) == {"n": 5, "ok": 1.0}
    assert world.asked_gate == [("update",), ("insert",)]
    assert [body for _, body in world.service.asked] == [{"update": "system.buckets.x"}]
    assert world.effects == [CLEARED]


async def test_a_dialogue_that_depends_on_the_users_roles_is_relayed() -> None:
    world = Translated(dialogue(STEP), {"n": 0, "ok": 1.0})
    deletes = [{"q": {"$expr": {"$in": ["auditor", "$$USER_ROLES._id"]}}, "limit": 0}]
    assert await world.run({"delete": "x", "deletes": deletes}) == {"n": 0, "ok": 1.0}
    assert (world.asked_gate, world.service.asked) == ([], [])
    assert [next(iter(body)) for body in world.asked] == ["delete"]


async def test_without_the_right_no_step_is_run() -> None:
    world = Translated(dialogue(Step("db", {"find": "x"}, Via.SERVICE)), UNAUTHORIZED, allowed=False)
    assert (await world.run({"delete": "x", "deletes": []}))["code"] == 13
    assert world.asked_gate == [("remove",)]
    assert world.service.asked == []


async def test_a_dialogue_may_leave_everything_to_the_backend() -> None:
    with pytest.raises(Undecodable):
        await Translated(dialogue(reply=PassThrough())).run({"delete": "x", "deletes": []})


async def test_nothing_more_is_sought_for_a_client_that_left() -> None:
    world = Translated(dialogue(Step("db", {"find": "x"}, Via.SERVICE)))
    world.session.upstream.is_closed = True
    with pytest.raises(BackendUnavailable) as caught:
        await world.run({"delete": "x", "deletes": []})
    assert caught.value.code == CLIENT_DISCONNECT
    assert world.service.asked == []


async def test_a_retryable_write_that_met_no_primary_is_labelled() -> None:
    reply: dict[str, Any] = {"ok": 0.0, "code": 10107, "errmsg": "not primary"}
    world = Translated(dialogue(STEP, reply=reply), reply, reply)
    assert "errorLabels" not in await world.run({"delete": "x", "deletes": []})
    session = {"lsid": {"id": bson.Binary(bytes(16), 4)}, "txnNumber": Int64(1)}
    assert (await world.run({"delete": "x", "deletes": [], **session}))["errorLabels"] == ["RetryableWriteError"]


async def test_errors_of_a_dialogue_are_the_clients() -> None:
    def run() -> Generator[Step | Effect | Pause, Mapping[str, Any], Document | PassThrough]:
        yield STEP
        raise CommandError(2, "no")

    with pytest.raises(CommandError, match="no"):
        await Translated(Dialogue(run), {"ok": 1.0}).run({"delete": "x", "deletes": []})


@pytest.mark.parametrize(("collection", "taken"), [("x", True), ("y", False)])
def test_more_of_a_cursor_is_taken_where_it_may_be_on_buckets(collection: str, taken: bool) -> None:
    handler = Translated(PassThrough()).handler
    more = parse_command(Message.from_bytes(command({"getMore": Int64(1), "collection": collection, "$db": "db"})))
    assert handler.takes_cursor(more) is taken
    handler.context.cursors.opened(1, Namespace("db", "system.buckets.other"))
    assert handler.takes_cursor(more)
    assert not handler.takes_cursor(parse_command(Message.from_bytes(command({"find": "x", "$db": "db"}))))


def test_natively_only_cursors_that_were_opened_on_buckets_are_taken() -> None:
    world = Translated(PassThrough())
    world.profile = Profile(access=Access.NATIVE)
    more = parse_command(Message.from_bytes(command({"getMore": Int64(1), "collection": "x", "$db": "db"})))
    assert not world.handler.takes_cursor(more)
    world.cursors.opened(1, Namespace("db", "system.buckets.x"))
    assert world.handler.takes_cursor(more)


def test_q12_times_that_this_process_wrote_count_before_the_listing_shows_them() -> None:
    written = Translated(PassThrough()).handler.context.as_written(TARGET)
    assert written.extended_range
    assert not TARGET.extended_range


MISMATCH = {"ok": 0.0, "code": UUID_MISMATCH, "errmsg": "Collection UUID does not match that specified"}


@pytest.mark.parametrize("plan", [Single(STEP), Cursor(STEP, TARGET.namespace)])
async def test_a_read_of_a_collection_that_was_made_again_goes_to_the_view(plan: Plan) -> None:
    world = Translated(plan, MISMATCH, {"n": 7, "ok": 1.0})
    assert await world.run({"count": "x"}) == {"n": 7, "ok": 1.0}
    assert world.asked == [STEP.body, {"count": "x"}]
    assert world.effects == [ForgetNamespace(TARGET.namespace)]


async def test_a_dialogue_about_a_collection_that_was_made_again_begins_anew() -> None:
    def run() -> Generator[Step | Effect | Pause, Mapping[str, Any], Document | PassThrough]:
        reply = yield STEP
        if reply["ok"] != 1:
            raise CommandError(reply["code"], "")
        return {"n": reply["n"], "ok": 1.0}

    world = Translated(Dialogue(run), MISMATCH, {"n": 3, "ok": 1.0})
    assert await world.run({"delete": "x", "deletes": []}) == {"n": 3, "ok": 1.0}
    assert world.asked_anew == 1
    world = Translated(Dialogue(run), *[MISMATCH] * 10)
    with pytest.raises(CommandError) as caught:
        await world.run({"delete": "x", "deletes": []})
    assert (caught.value.code, len(world.asked)) == (UUID_MISMATCH, ATTEMPTS)
    world = Translated(Dialogue(run), MISMATCH)
    world.found_anew = None
    with pytest.raises(Undecodable):
        await world.run({"delete": "x", "deletes": []})
