"""Which server of those that were asked the proxy would use."""

from __future__ import annotations

from proxy.process.doctor.found import Found, Member, Target
from proxy.settings.table import Settings

SILENT = Member("a:1", reason="Connection refused")
SECONDARY = Member("b:1", {"setName": "rs0"})
PRIMARY = Member("c:1", {"setName": "rs0", "isWritablePrimary": True})


def found(*members: Member, is_direct: bool = False) -> Found:
    return Found(Settings(), Target("mongodb://a", (), is_direct=is_direct), members)


def test_the_server_is_the_one_that_accepts_writes() -> None:
    assert found(SILENT, SECONDARY, PRIMARY).server is PRIMARY
    assert found(SILENT, SECONDARY).server is None


def test_a_direct_connection_has_no_choice() -> None:
    assert found(SECONDARY, is_direct=True).server is SECONDARY
    assert found(SILENT, is_direct=True).server is None


def test_a_mongos_is_known_by_its_message() -> None:
    assert Member("a:1", {"msg": "isdbgrid"}).is_mongos
    assert not PRIMARY.is_mongos
