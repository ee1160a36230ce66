"""The table of checks: pure functions from what was found to findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from proxy.backend.least_role import listing
from proxy.process.doctor import access_checks, account_checks, machine_checks, server_checks
from proxy.process.doctor.account_checks import granting
from proxy.process.doctor.finding import Finding, Remedy, literal, mongosh, note, ok
from proxy.process.doctor.found import Account, Collections, Found, SeriesIndexes, Unknown

Check = Callable[[Found], Finding | None]
"""``None`` if an earlier step failed, so that nothing is known."""

MOST_SHOWN: Final = 10
"""Maximum number of collections that a finding names."""


class Examination(NamedTuple):
    """The findings by check, in the order of the table, and the checks that could not be made."""

    findings: Mapping[str, Finding]
    not_made: tuple[str, ...]


def indexes(found: Found) -> Finding | None:
    """Which time-series collections have no index that finds their stored buckets, or the latest ones."""
    collections, account = found.collections, found.account
    if collections is None or not isinstance(account, Account):
        return None
    if isinstance(collections, Unknown):
        return note(f"not known: {collections.reason}")
    lacking = [each for each in collections.indexes if not (each.finds_series and each.finds_latest)]
    remedies = [_index(each) for each in lacking[:MOST_SHOWN]]
    text = _number(collections)
    if lacking:
        series = sum(not each.finds_series for each in lacking)
        latest = sum(not each.finds_latest for each in lacking)
        text += f"; without an index for the latest measurements: {latest}, for reopening stored buckets: {series}"
        text += f" (the first {MOST_SHOWN} are shown)" if len(lacking) > MOST_SHOWN else ""
    if collections.unknown:
        text += f"; the indexes of {collections.unknown} are not known"
        remedies += granting(account, [listing("listIndexes")]) if account.is_checked else ()
    return note(text, *remedies) if remedies or not collections.is_complete else ok(text)


def _number(collections: Collections) -> str:
    number = f"{collections.count} time-series collection{'' if collections.count == 1 else 's'}"
    return number if collections.is_complete else f"{number} looked at, there may be more"


def _index(lacking: SeriesIndexes) -> Remedy:
    database, collection = lacking.namespace
    keys = {lacking.meta_field: 1, lacking.time_field: -1}
    line = f"db.getSiblingDB({literal(database)}).getCollection({literal(collection)}).createIndex({literal(keys)})"
    return mongosh(line)


CHECKS: Final[Mapping[str, Check]] = {
    "reachable": server_checks.reachable,
    "topology": server_checks.topology,
    "tls": server_checks.tls,
    "clocks": server_checks.clocks,
    "version": server_checks.version,
    "timeseries": server_checks.timeseries,
    "login": account_checks.login,
    "rights": account_checks.rights,
    "access": access_checks.access,
    "feature_compatibility": server_checks.feature_compatibility,
    "growth": account_checks.growth,
    "proxies": account_checks.proxies,
    "indexes": indexes,
    "open_files": machine_checks.open_files,
}
"""All checks by name, in the order in which they are printed."""


def examination(found: Found) -> Examination:
    """All findings."""
    results = {name: check(found) for name, check in CHECKS.items()}
    return Examination(
        {name: finding for name, finding in results.items() if finding is not None},
        tuple(name for name, finding in results.items() if finding is None),
    )
