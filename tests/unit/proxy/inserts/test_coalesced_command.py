"""The writers of a native insert hear of it once."""

from __future__ import annotations

from catalog.errors import CommandError
from catalog.ports import WriteConcern
from proxy.inserts.coalesced_command import CoalescedCommand, Entry
from tests.support.catalog_parts import RememberingWriter, virtual


def command(*writers: RememberingWriter) -> CoalescedCommand:
    entries = [Entry(writer, 7, b"", 0.0) for writer in writers]
    return CoalescedCommand(virtual(), WriteConcern(), entries)


def test_a_failure_is_told_once() -> None:
    writers = [RememberingWriter() for _ in range(3)]
    made = command(*writers)
    made.fail(CommandError(91, "first"))
    made.fail(CommandError(1, "second"))
    assert [writer.codes for writer in writers] == [{7: 91}] * 3


def test_a_doubt_is_told_to_all_and_leaves_those_that_need_the_outcome() -> None:
    writers = [RememberingWriter() for _ in range(2)]
    assert command(*writers).doubt(CommandError(6, "lost"), 1.0) == {}
    assert [writer.codes for writer in writers] == [{7: 6}] * 2
