"""What follows from the access: which commands are rewritten, and what the proxy says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.process.access_mode import about, translated
from rewrite.profile import Access, Profile, Why
from rewrite.registry import REWRITERS
from tests.support.catalog_parts import CatalogBench

NATIVE = Profile(access=Access.NATIVE, why=Why.SHARDED, reason="sharded")


@pytest.mark.parametrize("command", ["aggregate", "find", "delete", "update", "findAndModify", "getMore", "mapReduce"])
def test_natively_commands_on_measurements_are_relayed(command: str) -> None:
    commands = {*REWRITERS, "getMore"}
    assert command in translated(commands, Profile())
    assert command not in translated(commands, NATIVE)


def test_cursors_on_buckets_are_continued_after_the_access_has_become_native() -> None:
    commands = {*REWRITERS, "getMore"}
    later = translated(commands, replace(NATIVE, had_buckets=True))
    assert later - translated(commands, NATIVE) == {"getMore"}


@pytest.mark.parametrize("command", ["create", "drop", "collMod", "serverStatus", "buildInfo", "convertToCapped"])
def test_others_have_their_effects_with_any_access(command: str) -> None:
    assert command in translated(REWRITERS, NATIVE)


def test_the_proxy_says_how_it_accesses_collections_and_why() -> None:
    catalog = CatalogBench().catalog
    said = about(catalog, NATIVE)
    assert (said["mode"], said["access"], said["accessReason"]) == ("native", "native", "sharded")
    said = about(catalog, Profile(reason="able"))
    assert (said["mode"], said["access"], said["accessReason"]) == ("in_place", "buckets", "able")
