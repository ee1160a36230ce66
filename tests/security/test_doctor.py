"""What ``tsproxy doctor`` says of the proxy's account, and that its commands fix it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from bson import json_util

from proxy.backend.least_role import least_privileges
from tests.support.access import ACCOUNT_PASSWORD, PASSWORD, GuardedMongod, least_role
from tests.support.proxy import tsproxy


def examined(uri: str, code: int) -> dict[str, dict[str, Any]]:
    """The findings by check."""
    done = tsproxy("doctor", "--json", "--backend", uri)
    assert done.returncode == code, done.stdout + done.stderr
    for password in (PASSWORD, ACCOUNT_PASSWORD, "not-it"):
        assert f":{password}@" not in done.stdout + done.stderr
    return {each["check"]: each for each in json.loads(done.stdout)["checks"]}


def lines_of(finding: dict[str, Any]) -> list[str]:
    return [each["text"] for each in finding["remedies"] if each["kind"] == "mongosh"]


def paste(server: GuardedMongod, line: str) -> None:
    """Execute a line for mongosh as the administrator."""
    found = re.fullmatch(r'db\.getSiblingDB\("(\w+)"\)\.(\w+)\((.*?)\)(?:  //.*)?', line)
    assert found is not None, line
    database, method, arguments = server.shared_client[found[1]], found[2], json_util.loads(f"[{found[3]}]")
    match method:
        case "runCommand":
            database.command(arguments[0])
        case "grantRolesToUser":
            database.command(method, arguments[0], roles=arguments[1])
        case "grantPrivilegesToRole":
            database.command(method, arguments[0], privileges=arguments[1])
        case _:
            raise AssertionError(line)


@pytest.fixture
def bare(guarded: GuardedMongod) -> Iterator[str]:
    """The connection string of an account without roles."""
    guarded.create_user("admin", "bare", [])
    yield guarded.uri_of("bare", PASSWORD, "admin")
    guarded.shared_client.admin.command("dropUser", "bare")


def test_the_least_role_is_the_documented_one() -> None:
    assert least_role()["privileges"] == least_privileges()


def test_the_least_role_is_enough(guarded: GuardedMongod) -> None:
    findings = examined(guarded.account_uri, 0)
    assert findings["login"]["text"] == "as tsproxy@admin"
    assert findings["rights"]["severity"] == "ok"
    assert findings["growth"]["severity"] == "note"
    privileges = '[{"resource": {"cluster": true}, "actions": ["inprog", "applyOps"]}]'
    grant = f'db.getSiblingDB("admin").grantPrivilegesToRole("tsproxy", {privileges})'
    assert lines_of(findings["growth"]) == [grant]
    assert "tsproxy" in findings["proxies"]["text"]
    assert "getParameter" in findings["feature_compatibility"]["text"]


def test_the_role_that_is_missing_is_printed(guarded: GuardedMongod, bare: str) -> None:
    rights = examined(bare, 3)["rights"]
    assert "bare@admin lacks listCollections; find, insert" in rights["text"]
    create, grant = lines_of(rights)
    assert create.endswith("  // unless the role exists")
    printed = re.search(r"runCommand\((.*)\)  //", create)
    assert printed is not None
    assert json.loads(printed[1]) == least_role()
    paste(guarded, grant)
    assert examined(bare, 0)["rights"]["severity"] == "ok"


def test_the_commands_for_further_privileges_work(guarded: GuardedMongod) -> None:
    admin = guarded.shared_client.admin
    try:
        findings = examined(guarded.account_uri, 0)
        paste(guarded, lines_of(findings["growth"])[0])
        findings = examined(guarded.account_uri, 0)
        assert (findings["growth"]["severity"], findings["proxies"]["severity"]) in {("ok", "ok"), ("ok", "note")}
    finally:
        wider = [{"resource": {"cluster": True}, "actions": ["inprog", "applyOps"]}]
        admin.command("revokePrivilegesFromRole", "tsproxy", privileges=wider)


def test_a_wrong_password(guarded: GuardedMongod, bare: str) -> None:
    login = examined(guarded.uri_of("bare", "not-it", "admin"), 3)["login"]
    assert login["severity"] == "problem"
    for part in ("user bare", "authSource admin", "Authentication failed"):
        assert part in login["text"]


def test_no_account_where_one_is_needed(guarded: GuardedMongod) -> None:
    login = examined(guarded.uri, 3)["login"]
    assert "names no account" in login["text"]
    assert ["createRole" in lines_of(login)[0], "createUser" in lines_of(login)[1]] == [True, True]
