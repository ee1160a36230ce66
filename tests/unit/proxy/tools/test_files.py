"""Files of mongoexport and mongodump are read row by row, from any mark, and bad rows are told with their line."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util

from proxy.tools.files import BsonFile, JsonFile, format_of, from_json, shown_document
from proxy.tools.rows import AnyRow, BadRow, Broken, Row

ROWS: list[dict[str, Any]] = [
    {"_id": number, "t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "text": 'a"}{[', "nested": {"list": [1, {"x": "}"}]}}
    for number in range(5)
]
LINES = [json_util.dumps(row) for row in ROWS]
FORMS = {
    "lines": "\n".join(LINES) + "\n",
    "no end": "\n".join(LINES),
    "empty lines": "\n\n".join(LINES) + "\n\n",
    "array of lines": "[" + ",\n".join(LINES) + "]\n",
    "array in one line": "[" + ",".join(LINES) + "]",
    "array apart": "[\n" + ",\n".join(LINES) + "\n]\n",
    "indented": "\n".join(json.dumps(json.loads(line), indent=2) for line in LINES),
    "indented array": json.dumps([json.loads(line) for line in LINES], indent=2),
    "byte order mark": "\ufeff" + "\n".join(LINES),
    "windows": "\r\n".join(LINES) + "\r\n",
    "three in a line": LINES[0] + " " + LINES[1] + LINES[2] + "\n" + LINES[3] + "\n" + LINES[4],
}


def write(tmp_path: Path, text: str, name: str = "rows.json", *, compressed: bool = False) -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    return path


def documents(entries: list[AnyRow]) -> list[Any]:
    return [bson.decode(entry.document)["_id"] if isinstance(entry, Row) else entry for entry in entries]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compressed", [False, True])
def test_forms_of_json_from_every_mark(tmp_path: Path, form: str, compressed: bool) -> None:
    source = JsonFile(write(tmp_path, FORMS[form], compressed=compressed))
    entries = list(source.rows({}))
    assert documents(entries) == [0, 1, 2, 3, 4]
    assert [entry.document for entry in entries if isinstance(entry, Row)] == [bson.encode(row) for row in ROWS]
    for number, entry in enumerate(entries, 1):
        assert documents(list(source.rows(source.mark_after(entry)))) == list(range(number, 5))


def test_bad_rows_are_told_with_their_line_and_others_are_read(tmp_path: Path) -> None:
    bad = ["nonsense", '{"a": 1', '{"a": {"$date": 5.5}', "[1, 2]", '{"a": }', '{"b": 1}}']
    for text in bad:
        source = JsonFile(write(tmp_path, f"{LINES[0]}\n{text}\n{LINES[1]}\n{LINES[2]}\n"))
        entries = list(source.rows({}))
        found = [entry for entry in entries if isinstance(entry, BadRow)]
        assert {entry.where for entry in found} == {2}, text
        assert [entry for entry in documents(entries) if isinstance(entry, int)] == [0, 1, 2], text
        assert found[0].reason
        after = list(source.rows(source.mark_after(found[-1])))
        assert documents(after) == [1, 2]


def test_types_of_extended_json_stay_exact() -> None:
    exact = {
        "long": bson.Int64(5), "int": 5, "double": 5.0, "minus": -0.0, "decimal": bson.Decimal128("1.10"),
        "date": bson.datetime_ms.DatetimeMS(-(1 << 60)), "binary": bson.Binary(b"x", 5), "id": bson.ObjectId(),
        "regex": bson.Regex("a", "i"), "code": bson.Code("x"), "scope": bson.Code("x", {"a": 1}),
        "timestamp": bson.Timestamp(1, 2), "least": bson.MinKey(), "null": None, "uuid": bson.Binary(bytes(16), 4),
    }  # fmt: skip
    raw = bson.encode(exact)
    text = shown_document(raw).encode()
    assert from_json(text) == raw


@pytest.mark.parametrize("compressed", [False, True])
def test_bson_from_every_mark(tmp_path: Path, compressed: bool) -> None:
    whole = b"".join(map(bson.encode, ROWS))
    path = tmp_path / "rows.bson"
    path.write_bytes(gzip.compress(whole) if compressed else whole)
    source = BsonFile(path)
    entries = list(source.rows({}))
    assert documents(entries) == [0, 1, 2, 3, 4]
    for number, entry in enumerate(entries, 1):
        assert documents(list(source.rows(source.mark_after(entry)))) == list(range(number, 5))


@pytest.mark.parametrize("damage", [lambda raw: raw[:-3], lambda raw: raw + b"\xff" * 9, lambda raw: raw + b"\1"])
def test_damaged_bson_says_where(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "rows.bson"
    path.write_bytes(damage(bson.encode({"a": 1}) + bson.encode({"a": 2})))
    with pytest.raises(Broken, match=r"document [23] at byte"):
        list(BsonFile(path).rows({}))


def test_a_cut_gzip_file_says_where(tmp_path: Path) -> None:
    path = tmp_path / "rows.json.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode())[:-12])
    with pytest.raises(Broken, match="cannot read on at byte"):
        list(JsonFile(path).rows({}))


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("a.bson", b"", "bson"),
        ("a.bson.gz", b"", "bson"),
        ("a.jsonl", b"", "json"),
        ("a", b' \n{"a": 1}', "json"),
        ("a", b"[{}]", "json"),
        ("a", bson.encode({"a": 1}), "bson"),
        ("a.dump", gzip.compress(bson.encode({"a": 1}), mtime=0), "bson"),
    ],
)
def test_formats(tmp_path: Path, name: str, content: bytes, form: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert format_of(path) == form


def test_a_source_is_known_by_its_content(tmp_path: Path) -> None:
    one = JsonFile(write(tmp_path, "1")).fingerprint()
    assert one == JsonFile(write(tmp_path, "1")).fingerprint()
    assert one != JsonFile(write(tmp_path, "2")).fingerprint()


def test_what_is_no_bson_is_shown_in_hexadecimal_digits() -> None:
    assert json.loads(shown_document(b"\5\0\0\0\1")) == {"hex": "0500000001"}
