"""The generator's patches must land where the marks were."""

from __future__ import annotations

import struct

import bson
import pytest

from bench.documents import BASE_MS, CPU, IOT, ORDINARY
from bench.messages import (
    HEADER_BYTES,
    INT32,
    SESSION_MARK,
    DocumentShape,
    command_template,
    encode_marked,
    get_more_template,
    insert_template,
)


@pytest.mark.parametrize("shape", [IOT, CPU, ORDINARY], ids=lambda shape: shape.name)
def test_every_mark_of_a_document_becomes_a_patch(shape: DocumentShape) -> None:
    raw, patches = encode_marked(shape.fields)
    kinds = [patch.partition(":")[0] for patch in patches]
    assert kinds.count("id") == 1
    assert kinds.count("time") == 1
    assert kinds.count("digits") == (1 if shape.meta_field else 0)
    assert kinds.count("whole") + kinds.count("tenth") == str(shape.fields).count("Value(")
    assert bson.decode(raw).keys() == shape.fields.keys()


def test_a_patched_time_is_read_back() -> None:
    raw, patches = encode_marked(IOT.fields)
    offset = int(next(patch for patch in patches if patch.startswith("time:")).split(":")[1])
    patched = bytearray(raw)
    struct.pack_into("<q", patched, offset, BASE_MS)
    assert bson.decode(bytes(patched))["time"].isoformat() == "2024-01-01T00:00:00"


def test_documents_of_an_insert_lie_one_after_the_other() -> None:
    template = insert_template("db", "c", IOT, 3)
    raw, _ = encode_marked(IOT.fields)
    for number in range(3):
        start = template.document_offset + number * template.document_length
        assert template.message[start : start + template.document_length] == raw
    assert struct.unpack_from("<i", template.message)[0] == len(template.message)
    assert template.message[template.session_offset :].startswith(SESSION_MARK)


def test_marks_in_a_command_are_patched_in_its_message() -> None:
    template = command_template("db", {"find": "c", "filter": {"_id": INT32}})
    (patch,) = template.patches
    offset = template.document_offset + int(patch.split(":")[1])
    assert struct.unpack_from("<i", template.message, offset) == (INT32,)


def test_the_cursor_of_a_get_more_is_found() -> None:
    template, offset = get_more_template("db", "c")
    patched = bytearray(template.message)
    struct.pack_into("<q", patched, offset, 42)
    assert bson.decode(bytes(patched[HEADER_BYTES + 5 :]))["getMore"] == 42
