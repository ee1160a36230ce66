"""What every write command does with its statements (W90), whatever they change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from catalog.errors import CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from rewrite.bucket_writes import Removal, Talk, WholeCommandFailed
from rewrite.commands.write_command import WriteCommand, WriteStatement, reads_from_the_primary, rewrite_write
from rewrite.plan import ClearBuckets, Dialogue, PassThrough, Request, Step
from rewrite.profile import Profile

OPTIONS = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)
X = VirtualCollection(Namespace("db", "x"), OPTIONS)
AS_IT_IS = PassThrough((ClearBuckets(X.namespace),))


def mark(request: Request, writes: Removal, statement: WriteStatement, counts: dict[str, int]) -> Talk[None]:
    """Counts one for each statement; ``fails`` in it is the error to raise, and ``whole`` one for all of them."""
    yield from ()
    counts["n"] += 1
    if "whole" in statement.entry:
        raise WholeCommandFailed(statement.entry["whole"], "everything")
    if "fails" in statement.entry:
        raise CommandError(statement.entry["fails"], "this one")
    counts["nMarked"] += 1


MARK = WriteCommand(
    name="mark",
    statements="marks",
    counts=("n", "nMarked"),
    is_well_formed=lambda entry: isinstance(entry, Mapping) and "q" in entry,
    is_native=lambda request, target, entry: entry.get("native", False),
    is_fatal=lambda request, target: False,
    execute=mark,
)


def plan(*marks: Any, command: WriteCommand = MARK, in_transaction: bool = False, **options: Any) -> Any:
    """The plan of a command with these statements."""
    request = Request("mark", X.namespace, {"mark": "x", "marks": [*marks], **options}, X, Profile((6, 0, 5)))
    return rewrite_write(command, replace(request, in_transaction=in_transaction))


def test_natively_if_the_backend_executes_all_statements() -> None:
    assert plan({"q": {}, "native": True}, {"q": {}, "native": True}) == AS_IT_IS
    assert isinstance(plan({"q": {}, "native": True}, {"q": {}}), Dialogue)


@pytest.mark.parametrize(
    "options",
    [{"unknown": 1}, {"let": 1}, {"writeConcern": "majority"}, {"readConcern": {"level": "snapshot"}}],
    ids=str,
)
def test_the_backend_judges_a_command_that_is_not_understood(options: dict[str, Any]) -> None:
    assert plan({"q": {}}, **options) == AS_IT_IS


def test_a_command_may_support_less() -> None:
    picky = replace(MARK, is_supported=lambda body: body.get("comment") != "no")
    assert plan({"q": {}}, command=picky, comment="no") == AS_IT_IS
    assert isinstance(plan({"q": {}}, command=picky, comment="yes"), Dialogue)


def test_statements_that_must_not_be_relayed_are_refused_where_the_command_would_be() -> None:
    def refuse(request: Request, target: VirtualCollection, statements: Any) -> None:
        raise CommandError(115, "not these")

    careful = replace(MARK, refuse_fatal=refuse)
    with pytest.raises(CommandError, match="not these"):
        plan({"q": {}}, command=careful, in_transaction=True)
    assert isinstance(plan({"q": {}}, command=careful), Dialogue)


CHECKED = {"n": 0, "electionId": 1, "opTime": 2, "ok": 1.0, "$clusterTime": 3, "operationTime": 4}
"""The backend's reply to the check of a command as a whole."""


def answer_of(dialogue: Dialogue) -> Mapping[str, Any]:
    """The client's reply, if the backend accepts the command as a whole."""
    talk = dialogue.run()
    check = next(talk)
    assert isinstance(check, Step)
    assert check.body["delete"] == "system.buckets.x"
    with pytest.raises(StopIteration) as stop:
        talk.send(CHECKED)
    reply: Mapping[str, Any] = stop.value.value
    return reply


FIRST, BAD, LAST = {"q": {}}, {"q": {}, "fails": 72}, {"q": {}}


@pytest.mark.parametrize(("ordered", "marked"), [(True, 1), (False, 2)])
def test_an_error_ends_ordered_statements_only(ordered: bool, marked: int) -> None:
    reply = answer_of(plan(FIRST, BAD, LAST, ordered=ordered))
    assert reply["nMarked"] == marked
    assert [(error["index"], error["code"]) for error in reply["writeErrors"]] == [(1, 72)]


def test_w90_the_fields_of_a_reply_have_the_servers_order() -> None:
    reply = answer_of(plan(FIRST, BAD))
    assert list(reply) == ["n", "electionId", "opTime", "writeErrors", "nMarked", "ok", "$clusterTime", "operationTime"]


def test_what_fails_for_all_is_the_commands_error() -> None:
    with pytest.raises(CommandError, match="everything"):
        answer_of(plan(FIRST, {"q": {}, "whole": 13}, LAST, ordered=False))


@pytest.mark.parametrize(
    ("concern", "so"), [({}, True), ({"level": "local"}, True), ({"level": "majority"}, False), (5, False)]
)
def test_which_read_concerns_ask_for_no_more_than_a_write(concern: Any, so: bool) -> None:
    assert reads_from_the_primary({"readConcern": concern}) is so
