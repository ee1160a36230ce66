"""Deletes that end the process of a server never reach it (H8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import encode

from catalog.bson.faithful import Opaque
from catalog.errors import CommandError
from rewrite.commands.delete import rewrite_delete
from rewrite.commands.explain import rewrite_explain
from rewrite.commands.fatal_deletes import is_fatal
from rewrite.plan import Dialogue, PassThrough
from rewrite.profile import Profile
from tests.support.scopes import TARGET, request

COLLATION = {"locale": "en", "strength": 2}
COLLATED = replace(TARGET, collation=COLLATION)
SEVEN = Profile(version=(7, 0, 28))
EXPRESSION = {"$expr": {"$eq": ["$v", 1]}}


def command(*queries: Any, **fields: Any) -> dict[str, Any]:
    return {"delete": "x", "deletes": [{"q": query, "limit": 0, **fields} for query in queries]}


@pytest.mark.parametrize(
    ("query", "fatal"),
    [
        (EXPRESSION, True),
        ({"m": 1, **EXPRESSION}, True),
        ({"$or": [{"m": 1}, {"$and": [EXPRESSION]}]}, True),
        (Opaque(encode({"v": 1})), True),
        ({"v": {"$gt": 1}, "$or": 5}, False),
        ({"$and": [{"v": 1}, 5]}, False),
        (5, False),
    ],
    ids=str,
)
def test_h8_statements_that_a_server_does_not_survive(query: Any, fatal: bool) -> None:
    body = command(query)
    assert is_fatal(request(body, target=COLLATED, profile=SEVEN), COLLATED, body["deletes"][0]) is fatal
    assert not is_fatal(request(body, profile=SEVEN), TARGET, body["deletes"][0])
    assert not is_fatal(request(body, target=COLLATED), COLLATED, body["deletes"][0])
    named = {**body["deletes"][0], "collation": {"locale": "simple"}}
    assert not is_fatal(request(body, target=COLLATED, profile=SEVEN), COLLATED, named)


def test_h8_the_proxy_deletes_itself() -> None:
    """And leaves deletes by the meta field to the server (H9)."""
    assert isinstance(rewrite_delete(request(command(EXPRESSION), target=COLLATED, profile=SEVEN)), Dialogue)
    assert isinstance(rewrite_delete(request(command({"m": 1}), target=COLLATED, profile=SEVEN)), PassThrough)


def test_h8_refused_where_only_the_server_could_do_it() -> None:
    body = command({"v": 1}, EXPRESSION)
    within = request(body, target=COLLATED, profile=SEVEN, in_transaction=True)
    explain = request({"explain": body}, target=COLLATED, profile=SEVEN)
    for refuse in (lambda: rewrite_delete(within), lambda: rewrite_explain(explain)):
        with pytest.raises(CommandError, match=r"db\.x, which has a collation; name the") as refused:
            refuse()
        assert refused.value.code == 115
    named = command(EXPRESSION, collation=COLLATION)
    assert isinstance(rewrite_explain(request({"explain": named}, target=COLLATED, profile=SEVEN)), PassThrough)
    assert isinstance(rewrite_explain(request({"explain": body}, target=COLLATED)), PassThrough)
    allowed = request(named, target=COLLATED, profile=SEVEN, in_transaction=True)
    assert isinstance(rewrite_delete(allowed), PassThrough)
