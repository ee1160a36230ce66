"""How time-series collections would be accessed, from what was found."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.identity import User
from proxy.backend.least_role import least_privileges
from proxy.process.doctor import access_checks, account_checks
from proxy.process.doctor.finding import Finding, Severity
from proxy.process.doctor.found import Account, Found, Member, Target, Unknown
from proxy.settings.config import load_settings

BUILD = {"versionArray": [6, 0, 5, 0]}
LEAST = Account(User("tsproxy", "admin"), True, (), tuple(least_privileges()))
READ_WRITE = {"resource": {"db": "d", "collection": ""}, "actions": ["find", "insert", "listCollections", "remove"]}
LIMITED = Account(User("app", "d"), True, (), (READ_WRITE,))
BARE = Account(User("bare", "d"), True)


def found(account: Any = LEAST, *, wanted: str = "auto", build: Any = BUILD, **known: Any) -> Found:
    settings = load_settings({"timeseries_access": wanted}, {}).settings
    server = Member("db:1", {"isWritablePrimary": True})
    return Found(settings, Target("mongodb://db", ()), (server,), account=account, build=build, **known)


def checked(finding: Finding | None) -> tuple[Severity, str]:
    assert finding is not None
    return finding.severity, finding.text


@pytest.mark.parametrize("missing", [{"build": None}, {"build": Unknown("x")}, {"account": None}])
def test_too_little_is_known(missing: dict[str, Any]) -> None:
    assert access_checks.access(found(**missing)) is None
    assert not access_checks.is_native(found(**missing))


def test_the_access_and_why() -> None:
    assert checked(access_checks.access(found())) == (
        Severity.OK,
        "buckets: the server allows access to buckets",
    )
    native = found(wanted="native")
    assert checked(access_checks.access(native)) == (Severity.OK, "native: timeseries_access is native")
    severity, text = checked(access_checks.access(found(LIMITED)))
    assert severity is Severity.NOTE
    assert text.startswith("native: the backend's account lacks find, insert")
    severity, text = checked(access_checks.access(found(wanted="buckets", is_closed=True)))
    assert (severity, "closed" in text) == (Severity.WARNING, True)


def test_rights_and_growth_depend_on_it() -> None:
    limited = found(LIMITED, in_place_reason="")
    assert checked(account_checks.rights(limited))[0] is Severity.OK
    assert checked(account_checks.growth(limited)) == (Severity.OK, "the server makes the buckets")
    severity, text = checked(account_checks.rights(found(BARE, wanted="native")))
    assert (severity, text) == (
        Severity.PROBLEM,
        "the account bare@d lacks listCollections; find, insert, remove on collections",
    )
