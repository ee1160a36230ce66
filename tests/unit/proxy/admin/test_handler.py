"""Checks come before the action, and each command gets one reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structlog.testing import capture_logs

from catalog.errors import CommandError
from catalog.identity import identity_of
from proxy.admin.arguments import Call
from proxy.admin.handler import AdminHandler
from proxy.admin.rights import AdminRights
from proxy.admin.table import COMMANDS
from proxy.observe.tasks import TaskSet
from proxy.request.attempt import Unexpected
from proxy.request.authorisation import Rights
from proxy.request.session import Session
from tests.support.admin_calls import Asking
from tests.support.sessions import session

READS = Rights([{"resource": {"cluster": True}, "actions": ["serverStatus", "inprog"]}])
EVERYTHING = Rights([{"resource": {"anyResource": True}, "actions": ["anyAction"]}])


class Backend:
    is_enforced = True

    def __init__(self, rights: Rights) -> None:
        self.given = rights

    async def rights(self, session: Session) -> Rights:
        return self.given


class Room:
    def __init__(self, rights: Rights = READS) -> None:
        self.calls: list[Call] = []
        self.tasks = TaskSet(lambda error: None)
        actions = {"status": self.act, "kill": self.act, "close": self.act}
        self.handler = AdminHandler(actions, AdminRights(Backend(rights), lambda: "loopback"), self.tasks)

    async def act(self, call: Call) -> Mapping[str, Any]:
        self.calls.append(call)
        if call.session.peer == "broken":
            raise ValueError("a bug")
        if call.session.peer == "refused":
            raise CommandError(117, "not now", details={"why": 1})
        return {"a": 1}

    async def ask(self, asking: Asking, **command: Any) -> dict[str, Any]:
        self.handler.start(asking.exchange(command))
        await self.tasks.close(1.0)
        return asking.replies[-1] if asking.replies else {}


def somebody(peer: str = "") -> Asking:
    client = session(identity_of([("u", "admin")]))
    client.peer = peer
    return Asking(client)


async def test_an_action_gives_the_reply() -> None:
    room = Room()
    assert await room.ask(somebody(), tsproxy="status") == {"a": 1, "ok": 1.0}
    assert [call.name for call in room.calls] == ["status"]


async def test_who_may_not_does_nothing_and_learns_nothing() -> None:
    room = Room()
    for asking, command in (
        (Asking(), {"tsproxy": "nonsense"}),
        (Asking(), {"tsproxy": "status"}),
        (somebody(), {"tsproxy": "kill", "connection": 1}),
    ):
        reply = await room.ask(asking, **command)
        assert (reply["ok"], reply["code"]) == (0, 13)
    assert room.calls == []


async def test_errors_are_replies_and_bugs_are_reported() -> None:
    room = Room()
    reply = await room.ask(somebody("refused"), tsproxy="status")
    assert (reply["code"], reply["codeName"], reply["why"]) == (117, "ConflictingOperationInProgress", 1)
    broken = somebody("broken")
    assert await room.ask(broken, tsproxy="status") == {}
    (outcome,) = broken.started.outcomes
    assert isinstance(outcome, Unexpected)


async def test_help_lists_what_there_is() -> None:
    room = Room()
    reply = await room.ask(somebody(), tsproxy="help")
    assert list(reply["commands"]) == ["help", "status", "kill", "close"]
    assert reply["commands"]["kill"]["privileges"] == ["killop", "shutdown"]
    assert reply["commands"]["kill"]["fields"]["connection"].startswith("whole number, required: ")
    room.handler.add(dict.fromkeys(COMMANDS, room.act))
    assert await room.ask(somebody(), tsproxy="help") == {"a": 1, "ok": 1.0}


async def test_changes_are_logged_without_meta_values() -> None:
    with capture_logs() as logs:
        await Room(EVERYTHING).ask(somebody("refused"), tsproxy="close", collection="d.c", meta="secret")
    assert [line["event"] for line in logs] == ["admin command", "admin command failed"]
    assert (logs[0]["fields"], logs[0]["users"]) == ({"collection": "d.c"}, ["u@admin"])
    assert "secret" not in str(logs)
