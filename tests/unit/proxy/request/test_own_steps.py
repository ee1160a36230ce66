"""Errors of the proxy's own commands say what a client may hear."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from proxy.request.own_steps import client_message, client_reply

QUOTED = 'not authorized on d to execute command { insert: "system.buckets.c", documents: [ { v: "secret" } ] }'


@pytest.mark.parametrize("holds_data", [True, False])
def test_a_missing_privilege_quotes_nothing(holds_data: bool) -> None:
    assert "lacks a privilege" in client_message(13, QUOTED, holds_data=holds_data)
    assert "insert" not in client_message(13, QUOTED, holds_data=holds_data)


@pytest.mark.parametrize("code", [1, 2, 9, 14, 72, 121, 10334, 11000, 50, 16766, 5930501])
def test_what_may_quote_data_is_in_our_words(code: int) -> None:
    assert (
        client_message(code, QUOTED, holds_data=True)
        == f"a step that tsproxy carries out at the backend failed with error {code}"
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (2, "cannot use 'w' > 1 when a host is not replicated"),
        (64, "waiting for replication timed out"),
        (79, "No write concern mode named 'x' found in replica set configuration"),
        (11600, "interrupted at shutdown"),
        (5930501, "Indexed measurement field contains an array value"),
    ],
)
def test_write_concerns_and_members_that_leave_are_told(code: int, message: str) -> None:
    assert client_message(code, message, holds_data=True) == message


def test_what_the_client_asked_itself_is_answered_in_the_servers_words() -> None:
    assert (
        client_message(2, "unknown operator: $nope in d.system.buckets.c", holds_data=False)
        == "unknown operator: $nope in d.c"
    )
    assert len(client_message(2, "x" * 100_000, holds_data=False)) < 100


def test_replies_keep_their_codes_and_lose_their_details() -> None:
    error: dict[str, Any] = {"code": 11000, "errmsg": "dup key: { v: 1 }", "keyValue": {"v": 1}}
    whole = bson.decode(client_reply(bson.encode({"ok": 0.0, **error, "errorLabels": ["a"]}), holds_data=True))
    assert (whole["ok"], whole["code"], whole["errorLabels"]) == (0, 11000, ["a"])
    assert "keyValue" not in whole
    one = bson.decode(
        client_reply(bson.encode({"n": 0, "writeErrors": [{"index": 2, **error}], "ok": 1.0}), holds_data=True)
    )
    (entry,) = one["writeErrors"]
    assert (entry["index"], entry["code"], one["n"]) == (2, 11000, 0)
    assert "v: 1" not in str(one)


def test_a_success_stays_as_it_is() -> None:
    reply = bson.encode({"n": 1, "value": {"errmsg": "code"}, "ok": 1.0})
    assert client_reply(reply, holds_data=True) is reply
