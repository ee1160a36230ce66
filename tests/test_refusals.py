"""What the page about refusals says is refused is refused, with that error, and what it says to do instead works."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure

from tests.support.pages import adapted, blocks
from tests.support.proxy import ProxyProcess

MAY_PRINT_NOTHING = 1
"""The first block, which prepares the collection."""


def shown_by(code: str, names: dict[str, Any]) -> str:
    """What a block prints, or the error with which it ends."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, names)
        except OperationFailure as error:
            text = re.sub(r", full error: .*", "", str(error), flags=re.DOTALL)
            print(f"{error.code}: {text}")
    return printed.getvalue()


def test_blocks_show_what_the_page_says(proxy_rs: ProxyProcess, db_name: str) -> None:
    found = blocks("start/refusals.md", "python")
    assert [block.code for block in found[MAY_PRINT_NOTHING:] if not block.output] == []
    names: dict[str, Any] = {}
    try:
        shown = [shown_by(adapted(block.code, proxy_rs.address, db_name), names) for block in found]
    finally:
        client: MongoClient[dict[str, Any]] = names["client"]
        client.drop_database(db_name)
        client.close()
    assert shown == [adapted(block.output, proxy_rs.address, db_name) for block in found]
