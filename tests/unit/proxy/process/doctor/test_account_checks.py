"""What is said of the proxy's account, from the reply to ``connectionStatus``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.identity import User
from proxy.backend.least_role import least_privileges
from proxy.process.doctor import account_checks as checks
from proxy.process.doctor.finding import Finding, Severity
from proxy.process.doctor.found import Account, Found, Member, Target, Unknown
from proxy.process.exit_codes import ExitCode
from proxy.process.growth_policy import CANNOT_JOIN, MAY_NOT_ASK, MAY_NOT_JOIN
from proxy.settings.config import load_settings

ALONE = Member("db:1", {"isWritablePrimary": True})
PRIMARY = Member("db:1", {"isWritablePrimary": True, "setName": "rs0"})
LEAST = Account(User("tsproxy", "admin"), True, (("tsproxy", "admin"),), tuple(least_privileges()))
OWN_ROLE = Account(User("x", "app"), True, (("mine", "app"),), tuple(least_privileges()))
BARE = Account(User("x", "app"), True)
OPEN = Account(None, False)


def found(account: Any, *, growth: str = "auto", user: str = "x", server: Member = ALONE, **known: Any) -> Found:
    settings = load_settings({"write_strategy": growth}, {}).settings
    return Found(settings, Target("mongodb://db", (), user=user, source="app"), (server,), account=account, **known)


def checked(finding: Finding | None) -> Finding:
    assert finding is not None
    return finding


def test_logins_that_were_accepted() -> None:
    assert checked(checks.login(found(LEAST))).severity is Severity.OK
    assert checked(checks.login(found(OPEN))).severity is Severity.NOTE


def test_a_refused_login_names_user_and_database() -> None:
    refused = checked(checks.login(found(Unknown("db:1: Authentication failed.", 18))))
    assert refused.exit_code is ExitCode.FIX_BACKEND
    assert "user x, authSource app: db:1: Authentication failed" in refused.text
    assert 'db.getSiblingDB("app").getUser("x")' in [each.text for each in refused.remedies]


def test_a_login_without_a_reply_may_pass() -> None:
    assert checked(checks.login(found(Unknown("no answer", 89, True)))).exit_code is ExitCode.TRY_AGAIN
    assert checked(checks.login(found(Unknown("no answer", 6, True), user=""))).exit_code is ExitCode.TRY_AGAIN


def test_a_backend_that_wants_an_account_is_told_how_to_get_one() -> None:
    needed = checked(checks.login(found(Unknown("not authorized", 13), user="")))
    assert needed.exit_code is ExitCode.FIX_BACKEND
    assert ["createRole" in needed.remedies[0].text, "createUser" in needed.remedies[1].text] == [True, True]


def test_an_account_with_the_least_role_has_all_rights() -> None:
    assert checked(checks.rights(found(LEAST))).severity is Severity.OK
    assert checked(checks.rights(found(OPEN))).severity is Severity.OK
    assert checks.rights(found(Unknown("refused", 18))) is None
    assert checks.rights(found(None)) is None


def test_an_account_that_passes_a_write_block_is_noted() -> None:
    bypasses = {"resource": {"cluster": True}, "actions": ["bypassWriteBlockingMode"]}
    noted = checked(checks.rights(found(replace(LEAST, privileges=(*LEAST.privileges, bypasses)))))
    assert noted.severity is Severity.NOTE
    assert "setUserWriteBlockMode" in noted.text


def test_missing_rights_are_granted_with_a_new_role() -> None:
    bare = checked(checks.rights(found(BARE)))
    assert bare.exit_code is ExitCode.FIX_BACKEND
    assert "listCollections; find, insert" in bare.text
    create, grant = (each.text for each in bare.remedies)
    assert create.startswith('db.getSiblingDB("admin").runCommand({"createRole": "tsproxy", "privileges": [')
    assert grant == 'db.getSiblingDB("app").grantRolesToUser("x", [{"role": "tsproxy", "db": "admin"}])'


def test_an_account_of_a_database_with_an_at_sign_is_named_as_it_is() -> None:
    odd = checked(checks.rights(found(Account(User("x", "app@eu"), True))))
    _, grant = (each.text for each in odd.remedies)
    assert grant == 'db.getSiblingDB("app@eu").grantRolesToUser("x", [{"role": "tsproxy", "db": "admin"}])'


def test_missing_rights_are_added_to_the_role_that_is_there() -> None:
    partly = Account(User("x", "app"), True, (("tsproxy", "app"),), tuple(least_privileges()[:1]))
    (grant,) = checked(checks.rights(found(partly))).remedies
    assert grant.text.startswith(
        'db.getSiblingDB("app").grantPrivilegesToRole("tsproxy", [{"resource": {"db": "", "sys'
    )
    assert "listCollections" not in grant.text


@pytest.mark.parametrize(
    ("growth", "reason", "server", "severity", "actions"),
    [
        ("auto", "", ALONE, Severity.OK, None),
        ("in_place", "write_strategy is in_place", ALONE, Severity.NOTE, None),
        ("auto", CANNOT_JOIN, ALONE, Severity.NOTE, None),
        ("in_parts", CANNOT_JOIN, ALONE, Severity.WARNING, None),
        ("auto", MAY_NOT_JOIN, ALONE, Severity.NOTE, '["inprog", "applyOps"]'),
        ("auto", MAY_NOT_ASK, PRIMARY, Severity.NOTE, '["inprog"]'),
        ("in_parts", MAY_NOT_JOIN, ALONE, Severity.WARNING, '["applyOps"]'),
    ],
)
def test_growth(growth: str, reason: str, server: Member, severity: Severity, actions: str | None) -> None:
    finding = checked(checks.growth(found(LEAST, growth=growth, server=server, in_place_reason=reason)))
    assert finding.severity is severity
    assert ("restart" in finding.text) == (actions is not None)
    if actions is not None:
        resource = f'[{{"resource": {{"cluster": true}}, "actions": {actions}}}]'
        (grant,) = finding.remedies
        assert grant.text == f'db.getSiblingDB("admin").grantPrivilegesToRole("tsproxy", {resource})'


def test_growth_that_is_not_known() -> None:
    assert checks.growth(found(LEAST)) is None
    assert checked(checks.growth(found(LEAST, in_place_reason=Unknown("no version")))).severity is Severity.NOTE


def test_further_privileges_come_with_a_role_of_their_own() -> None:
    privilege = {"resource": {"cluster": True}, "actions": ["inprog"]}
    create, _ = checks.granting(OWN_ROLE, [privilege])
    assert "createRole" in create.text
    assert "inprog" in create.text
    (grant,) = checks.granting(BARE, [privilege])
    assert "grantPrivilegesToRole" in grant.text, "the role is created because of the rights"


@pytest.mark.parametrize(
    ("count", "severity", "part"),
    [
        (0, Severity.OK, "no tsproxy"),
        (1, Severity.NOTE, "one tsproxy"),
        (2, Severity.NOTE, "2 tsproxy processes"),
        (100, Severity.NOTE, "100 or more"),
        (Unknown("refused", 13), Severity.NOTE, "inprog"),
    ],
)
def test_other_proxies(count: Any, severity: Severity, part: str) -> None:
    finding = checked(checks.proxies(found(LEAST, proxies=count)))
    assert finding.severity is severity
    assert part in finding.text
    assert checks.proxies(found(LEAST)) is None


def test_a_server_without_time_series_needs_no_rights_and_has_no_buckets() -> None:
    lacking = found(BARE, has_timeseries=False, in_place_reason=CANNOT_JOIN)
    assert checked(checks.rights(lacking)).severity is Severity.OK
    grown = checked(checks.growth(lacking))
    assert (grown.severity, grown.remedies) == (Severity.NOTE, ())
    assert "no time-series collections" in grown.text
