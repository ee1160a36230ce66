"""Judges the proxy's account: its login, its privileges, and what depends on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from catalog.errors import UNAUTHORIZED
from proxy.backend.current_op import MOST_PROXIES
from proxy.backend.driver_errors import plain_reason
from proxy.backend.least_role import (
    ROLE,
    Privilege,
    least_privileges,
    missing_natively,
    missing_privileges,
    missing_rights,
)
from proxy.backend.probing import WITHOUT_TIMESERIES
from proxy.process.doctor.access_checks import is_native
from proxy.process.doctor.finding import (
    Finding,
    Remedy,
    literal,
    mongosh,
    note,
    ok,
    on_database,
    setting,
    unreachable,
    warning,
    wrong_backend,
)
from proxy.process.doctor.found import Account, Found, Unknown
from proxy.process.growth_policy import CANNOT_JOIN, MAY_NOT_ASK, MAY_NOT_JOIN
from proxy.request.authorisation import may_on_cluster

ADMIN: Final = "admin"
BYPASSES_WRITE_BLOCK: Final = "bypassWriteBlockingMode"
"""What the proxy's account writes for clients passes the block; ``root`` and ``restore`` have this action."""


def granting(account: Account, privileges: Iterable[Privilege]) -> tuple[Remedy, ...]:
    """How an administrator grants further privileges to the account: in its role, or in a new one."""
    wanted = list(privileges)
    database = _database_of_role(account)
    if database is None and missing_rights(account.privileges):
        database = ADMIN  # the finding about the rights creates the role
    if database is None:
        return _new_role_for(account, wanted)
    return (mongosh(on_database(database, "grantPrivilegesToRole", ROLE, wanted)),)


def _database_of_role(account: Account) -> str | None:
    return next((database for name, database in account.roles if name == ROLE), None)


def _new_role_for(account: Account, further: Iterable[Privilege] = ()) -> tuple[Remedy, ...]:
    return _new_role(further), *_grant(account, ROLE)


def _grant(account: Account, role: str) -> tuple[Remedy, ...]:
    if account.user is None:
        return ()
    roles = [{"role": role, "db": ADMIN}]
    return (mongosh(on_database(account.user.database, "grantRolesToUser", account.user.name, roles)),)


def _new_role(further: Iterable[Privilege] = ()) -> Remedy:
    privileges = least_privileges()
    privileges += [each for each in further if not _is_covered(each, privileges)]
    role = {"createRole": ROLE, "privileges": privileges, "roles": []}
    return mongosh(f"{on_database(ADMIN, 'runCommand', role)}  // unless the role exists")


def _is_covered(wanted: Privilege, privileges: Iterable[Privilege]) -> bool:
    return any(
        wanted["resource"] == each["resource"] and set(wanted["actions"]) <= set(each["actions"]) for each in privileges
    )


def login(found: Found) -> Finding | None:
    """Whether the backend accepts the account."""
    account, target = found.account, found.target
    if account is None:
        return None
    if isinstance(account, Account):
        if account.user is None:
            return note("no account: the backend has no access control, and everybody may do everything")
        return ok(
            f"as {account.user}" if account.is_checked else f"as {account.user}; the backend has no access control"
        )
    if not target.user:
        return _account_needed(account)
    reason = plain_reason(account.reason).rstrip(".")
    if account.may_pass:
        return unreachable(f"no login as {target.user}: {reason}")
    return wrong_backend(
        f"refused for user {target.user}, authSource {target.source}: {reason}",
        setting("backend: user and password, percent-encoded, and authSource, the database of the user"),
        mongosh(on_database(target.source, "getUser", target.user)),
        mongosh(
            f"db.getSiblingDB({literal(target.source)}).changeUserPassword({literal(target.user)}, passwordPrompt())"
        ),
    )


def _account_needed(account: Unknown) -> Finding:
    if account.code != UNAUTHORIZED:
        return unreachable(f"no reply: {account.reason}")
    create = f'db.getSiblingDB("{ADMIN}").createUser({{user: "{ROLE}", pwd: passwordPrompt(), roles: ["{ROLE}"]}})'
    return wrong_backend(
        "the backend has access control, but the connection string names no account",
        _new_role(),
        mongosh(create),
        setting(f"backend_file: a file with mongodb://{ROLE}:PASSWORD@HOST:PORT/?authSource={ADMIN}"),
    )


def rights(found: Found) -> Finding | None:
    """Whether the account has the least role."""
    account = found.account
    if not isinstance(account, Account):
        return None
    if not account.is_checked:
        return ok("no access control")
    if found.has_timeseries is False:
        return ok(f"none are needed: {WITHOUT_TIMESERIES}")
    if is_native(found):
        lacking = missing_natively(account.privileges)
        if not lacking:
            return ok("the account has the privileges that native access requires")
        return wrong_backend(
            f"the account {account.user} lacks {'; '.join(lacking)}", *_grant(account, "readWriteAnyDatabase")
        )
    missing = missing_rights(account.privileges)
    if not missing:
        if may_on_cluster(account.privileges, BYPASSES_WRITE_BLOCK):
            return note(f"the account has {BYPASSES_WRITE_BLOCK}: setUserWriteBlockMode does not stop clients' inserts")
        return ok("the account has the privileges of the least role")
    wanted = missing_privileges(account.privileges)
    remedies = granting(account, wanted) if _database_of_role(account) is not None else _new_role_for(account)
    return wrong_backend(f"the account {account.user} lacks {'; '.join(missing)}", *remedies)


def growth(found: Found) -> Finding | None:
    """Whether buckets grow in parts."""
    if is_native(found):
        return ok("the server makes the buckets")
    reason, account, server = found.in_place_reason, found.account, found.server
    if reason is None or server is None or not isinstance(account, Account):
        return None
    if isinstance(reason, Unknown):
        return note(f"not known: {reason.reason}")
    if found.has_timeseries is False:
        return note(f"no buckets: {WITHOUT_TIMESERIES}")
    if not reason:
        return ok("in parts" if found.settings.write_strategy == "in_parts" else "in parts under load")
    is_auto = found.settings.write_strategy == "auto"
    remedies: tuple[Remedy, ...] = ()
    if reason in (MAY_NOT_JOIN, MAY_NOT_ASK):
        needed = [*(["inprog"] if is_auto else []), *([] if server.set_name else ["applyOps"])]
        actions = [each for each in needed if not may_on_cluster(account.privileges, each)]
        remedies = granting(account, [{"resource": {"cluster": True}, "actions": actions}])
    elif reason == CANNOT_JOIN and not is_auto:
        remedies = (setting("write_strategy: auto"),)
    chosen = warning if found.settings.write_strategy == "in_parts" else note
    # It is decided at the start (``proxy.process.growth_policy``).
    again = "; restart tsproxy when they are granted" if remedies and reason in (MAY_NOT_JOIN, MAY_NOT_ASK) else ""
    return chosen(f"in place: {reason}{again}", *remedies)


def proxies(found: Found) -> Finding | None:
    """Which other processes of the proxy use the backend."""
    count = found.proxies
    if count is None:
        return None
    if isinstance(count, Unknown):
        unknown = "the account lacks inprog on the cluster" if count.code == UNAUTHORIZED else count.reason
        return note(f"not known: {unknown}")
    if count == 0:
        return ok("no tsproxy is connected")
    if count == 1:
        return note("one tsproxy is connected")
    number = f"{count} or more" if count == MOST_PROXIES else str(count)
    return note(f"{number} tsproxy processes are connected")
