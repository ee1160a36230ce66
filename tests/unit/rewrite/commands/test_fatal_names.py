"""Updates and deletes that end a server because of a name never reach it (H17)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from rewrite.commands.delete import rewrite_delete
from rewrite.commands.explain import rewrite_explain
from rewrite.commands.fatal_names import is_fatal_to_delete, is_fatal_to_update
from rewrite.commands.update import rewrite_update
from rewrite.plan import Dialogue, PassThrough, Plan, Request
from rewrite.profile import Profile
from tests.support.scopes import TARGET, request

NO_META = replace(TARGET, options=replace(TARGET.options, meta_field=""))
NO_TIME = replace(TARGET, options=replace(TARGET.options, time_field=""))
DELETE: dict[str, Any] = {"delete": "x", "deletes": [{"q": {}, "limit": 0}]}
UPDATE: dict[str, Any] = {"update": "x", "updates": [{"q": {"v": 1}, "u": {"$set": {"m": 1}}, "multi": True}]}
CASES = [(DELETE, NO_META), (UPDATE, NO_META), (UPDATE, NO_TIME)]


def rewritten(body: dict[str, Any], target: VirtualCollection, **fields: Any) -> Plan:
    """The plan of an update, a delete or an ``explain``."""
    command: Request = request(body, target=target, **fields)
    rewriters = {"delete": rewrite_delete, "update": rewrite_update, "explain": rewrite_explain}
    return rewriters[command.name](command)


def test_h17_names_that_a_server_does_not_survive() -> None:
    assert [is_fatal_to_delete(each.options) for each in (NO_META, NO_TIME, TARGET)] == [True, False, False]
    for version, ends_for_time in (((6, 0, 5), True), ((6, 0, 27), False)):
        profile = Profile(version=version)
        fatal = [is_fatal_to_update(each.options, profile) for each in (NO_META, NO_TIME, TARGET)]
        assert fatal == [True, ends_for_time, False]


@pytest.mark.parametrize(("body", "target"), CASES)
def test_h17_the_proxy_executes_them_itself(body: dict[str, Any], target: VirtualCollection) -> None:
    assert isinstance(rewritten(body, target), Dialogue)
    assert isinstance(rewritten(body, TARGET), PassThrough)


@pytest.mark.parametrize(("body", "target"), CASES)
def test_h17_refused_where_the_server_would_execute_them(body: dict[str, Any], target: VirtualCollection) -> None:
    unknown = {**body, "unheard": 1}
    seven = Profile(version=(7, 0, 28))
    refused: list[tuple[dict[str, Any], dict[str, Any]]] = [(unknown, {})]
    if target is NO_META:
        refused += [(body, {"profile": seven, "in_transaction": True}), ({"explain": body}, {"profile": seven})]
    for command, fields in refused:
        with pytest.raises(CommandError, match=r"update or delete of db\.x, whose time or meta field") as error:
            rewritten(command, target, **fields)
        assert error.value.code == 115
    # These a server refuses, or survives.
    assert isinstance(rewritten(body, target, in_transaction=True), PassThrough)
    assert isinstance(rewritten({"explain": body}, target), PassThrough)
    assert isinstance(rewritten(unknown, target, profile=Profile(version=(5, 0, 4))), PassThrough)
    assert isinstance(rewritten(unknown, TARGET), PassThrough)
