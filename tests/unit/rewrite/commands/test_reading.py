"""What the reading commands share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import Binary

from rewrite.commands.reading import (
    asks_for_text,
    cursor_reply_fields,
    of_this_collection,
    on_buckets,
    reads_buckets,
    whole_number,
)
from rewrite.profile import Profile
from tests.support.scopes import TARGET, request


@pytest.mark.parametrize(
    ("value", "number"), [(3, 3), (3.0, 3), (0, 0), (-1, None), (1.5, None), (True, None), ("3", None), (2.0**70, None)]
)
def test_whole_numbers(value: Any, number: int | None) -> None:
    """Shells send doubles."""
    assert whole_number(value) == number


def test_options_of_the_aggregate() -> None:
    """Only what means the same in ``aggregate``; an empty collation or hint is none."""
    body = {"find": "x", "collation": {}, "hint": {}, "maxTimeMS": 5, "let": {"a": 1}, "oplogReplay": True}
    command = on_buckets(body, [], TARGET, request(body))
    assert list(command) == ["aggregate", "pipeline", "cursor", "maxTimeMS", "let"]
    assert on_buckets({**body, "collation": {"locale": "en"}}, [], TARGET, request(body))["collation"] == {
        "locale": "en"
    }


def test_who_reads_buckets() -> None:
    body = {"find": "x"}
    assert reads_buckets(request(body))
    assert not reads_buckets(request(body, reads_buckets=False))
    assert not reads_buckets(request(body, profile=Profile(version=(4, 4, 0))))


def test_small_things() -> None:
    assert asks_for_text({"$and": [{"$text": {}}]})
    assert cursor_reply_fields({"cursor": {}, "ok": 1, "operationTime": 2}) == {"operationTime": 2}


def test_reads_name_the_collection_that_they_were_planned_for() -> None:
    """Not in a transaction, which the error would abort, nor to explain, nor where nothing is known of it."""
    known = replace(TARGET, uuid=bytes(range(16)))
    asked = request({"find": "x"})
    body: dict[str, Any] = {"aggregate": "system.buckets.x"}
    assert of_this_collection(body, known, asked) == {**body, "collectionUUID": Binary(known.uuid, 4)}
    assert of_this_collection(body, TARGET, asked) == body
    assert of_this_collection({**body, "explain": True}, known, asked) == {**body, "explain": True}
    assert of_this_collection(body, known, replace(asked, in_transaction=True)) == body
    for profile in (Profile(version=(5, 0, 4)), Profile(is_mongos=True)):
        assert of_this_collection(body, known, replace(asked, profile=profile)) == body
