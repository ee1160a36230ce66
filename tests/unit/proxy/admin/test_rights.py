"""Who may use admin commands; tests/security/test_admin.py asks a real server."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import BackendUnavailable, CommandError
from catalog.identity import identity_of
from catalog.namespaces import Namespace
from proxy.admin.rights import AdminRights, Origin
from proxy.admin.table import Right
from proxy.observe.loopback import is_loopback
from proxy.request.authorisation import KnownRights, Rights
from proxy.request.session import Session
from tests.support.sessions import session

SOMEBODY = identity_of([("u", "admin")])
READS = Rights([{"resource": {"cluster": True}, "actions": ["serverStatus", "inprog"]}])


class Backend:
    def __init__(self, rights: Rights | None = None, *, is_enforced: bool = True) -> None:
        self.is_enforced = is_enforced
        self.given = rights

    async def rights(self, session: Session) -> Rights:
        if self.given is None:
            raise BackendUnavailable("down")
        return self.given


async def refusal(backend: Backend, client: Session, right: Right, origin: Origin = "loopback") -> int | None:
    try:
        await AdminRights(backend, lambda: origin).check(client, "status", right)
    except CommandError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("localhost.example", False),
    ],
)
async def test_without_access_control_the_address_decides(peer: str, expected: bool) -> None:
    assert is_loopback(peer) is expected
    client = session()
    client.peer = peer
    open_backend = Backend(is_enforced=False)
    assert await refusal(open_backend, client, Right.CHANGE) == (None if expected else 13)
    assert await refusal(open_backend, client, Right.ANYONE) == (None if expected else 13)
    assert await refusal(open_backend, client, Right.CHANGE, "anywhere") is None


async def test_with_access_control_the_privileges_decide() -> None:
    assert await refusal(Backend(READS), session(), Right.ANYONE) == 13
    known = session(SOMEBODY)
    known.peer = "10.0.0.1"
    assert await refusal(Backend(READS), known, Right.ANYONE) is None
    assert await refusal(Backend(READS), known, Right.READ) is None
    assert await refusal(Backend(READS), known, Right.CHANGE) == 13
    everything = Rights([{"resource": {"anyResource": True}, "actions": ["anyAction"]}])
    assert await refusal(Backend(everything), known, Right.CHANGE) is None


async def test_while_the_backend_is_down_its_last_answer_counts() -> None:
    client = session(SOMEBODY)
    assert await refusal(Backend(), client, Right.READ) == 6
    client.rights = KnownRights(SOMEBODY, READS, until_seconds=0.0)
    assert await refusal(Backend(), client, Right.READ) is None
    assert await refusal(Backend(), client, Right.CHANGE) == 13
    client.rights = KnownRights(identity_of([("other", "admin")]), READS, until_seconds=0.0)
    assert await refusal(Backend(), client, Right.READ) == 6


@pytest.mark.parametrize(("actions", "expected"), [(["find"], True), (["insert"], False)])
async def test_measurements_are_for_those_who_may_find_them(actions: list[Any], expected: bool) -> None:
    given = Rights([{"resource": {"db": "d", "collection": ""}, "actions": actions}])
    rights = AdminRights(Backend(given), lambda: "loopback")
    assert await rights.may_find(session(SOMEBODY), Namespace("d", "c")) is expected
    assert await AdminRights(Backend(is_enforced=False), lambda: "loopback").may_find(session(), Namespace("d", "c"))
