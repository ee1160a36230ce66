"""``tsproxy bench`` as a user who may write to its database, or may not."""

from __future__ import annotations

import pytest
from bson import ObjectId

from tests.support.access import PASSWORD, GuardedMongod
from tests.support.proxy import ProxyProcess, tsproxy

BRIEF = ("--allow-writes", "--seconds", "0.3", "--rounds", "1", "--connections", "2", "--series", "4")


@pytest.mark.parametrize(
    ("role", "exit_code", "said"),
    [("readWrite", 0, ""), ("read", 2, "access denied"), (None, 2, "access denied")],
)
def test_access(
    guarded: GuardedMongod, guarded_proxy: ProxyProcess, role: str | None, exit_code: int, said: str
) -> None:
    database = f"bench_{ObjectId()}"
    guarded.create_user("admin", database, [{"role": role, "db": database}] if role else [])
    direct = guarded.uri_of(database, PASSWORD, "admin")
    through = guarded.through(guarded_proxy.address, direct)
    ended = tsproxy("bench", "--proxy", through, "--direct", direct, "--database", database, *BRIEF)
    assert ended.returncode == exit_code, ended.stderr
    assert said in ended.stderr
    assert "could not drop" not in ended.stderr + ended.stdout
    assert PASSWORD not in ended.stderr
    left = guarded.shared_client[database].list_collection_names()
    assert [name for name in left if not name.startswith("system.")] == []
