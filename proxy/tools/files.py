"""Files of mongoexport (extended JSON: one document in a line, an array, or indented) and of mongodump (BSON).

Both may be compressed with gzip. Positions are bytes of the uncompressed content.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion

from proxy.tools.rows import AnyRow, BadRow, Broken, Mark, Row

LONGEST_LINE_BYTES: Final = 128 << 20
READ_BYTES: Final = 1 << 20
LARGEST_DOCUMENT_BYTES: Final = (16 << 20) + (16 << 10)
HEAD_BYTES: Final = 64 << 10
SHOWN_CHARACTERS: Final = 100_000
FORMATS: Final = ("bson", "json")

CODEC: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_MS
)
READING: Final = json_util.JSONOptions(
    json_mode=json_util.JSONMode.CANONICAL, document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_MS
)
_GZIP: Final = b"\x1f\x8b"
_MARK: Final = b"\xef\xbb\xbf"
_BETWEEN: Final = b", \t\r\n"
_TEXTS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\]]', re.DOTALL)


def opened(path: Path) -> BinaryIO:
    """The uncompressed content; raises ``OSError``."""
    with path.open("rb") as file:
        compressed = file.read(2) == _GZIP
    return cast("BinaryIO", gzip.open(path, "rb")) if compressed else path.open("rb")


def format_of(path: Path) -> str:
    """``bson`` or ``json``, by the name of the file, or else by its first byte; raises ``OSError``."""
    suffixes = [each.lower() for each in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    if suffixes and suffixes[-1] == ".bson":
        return "bson"
    if suffixes and suffixes[-1] in (".json", ".jsonl", ".ndjson"):
        return "json"
    with opened(path) as file:
        head = file.read(HEAD_BYTES).removeprefix(_MARK).lstrip()
    return "json" if head[:1] in (b"{", b"[", b"") else "bson"


def from_json(text: bytes) -> bytes:
    """One document of extended JSON as BSON; raises ``ValueError`` with the reason."""
    try:
        document = json_util.loads(text.decode(), json_options=READING)
        if not isinstance(document, dict):
            raise ValueError("not a document")  # noqa: TRY004
        return bson.encode(document, codec_options=CODEC)
    except (ValueError, TypeError, OverflowError, RecursionError, bson.errors.BSONError) as error:
        raise ValueError(str(error) or type(error).__name__) from None


class _File:
    def __init__(self, path: Path) -> None:
        """Raises ``OSError`` or ``Broken`` if the file cannot be read."""
        self.path = path
        try:
            with opened(path) as file:
                self._head = file.read(HEAD_BYTES)
        except EOFError as error:
            raise Broken(f"{path}: cannot read on at byte 0: {error}") from None
        with path.open("rb") as file:
            is_plain = file.read(2) != _GZIP
        # The size of compressed content is not known in advance.
        self.total = path.stat().st_size if is_plain else 0

    def fingerprint(self) -> Mapping[str, Any]:
        return {
            "file": self.path.name,
            "size": self.path.stat().st_size,
            "begins": hashlib.sha256(self._head).hexdigest(),
        }

    def mark_after(self, entry: AnyRow) -> Mark:
        return {"byte": entry.end, "skip": entry.skip, "where": entry.where}

    def _at(self, mark: Mark) -> tuple[BinaryIO, int, int]:
        file = opened(self.path)
        position = int(mark.get("byte", 0))
        if position:
            file.seek(position)
        return file, position, int(mark.get("where", 0))


class BsonFile(_File):
    """Documents, one after the other."""

    unit = "document"

    def rows(self, mark: Mark) -> Iterator[AnyRow]:
        file, position, where = self._at(mark)
        data, at = b"", 0
        with file:
            while True:
                where += 1
                if len(data) - at < 4:
                    data, at = data[at:] + self._read(file, READ_BYTES, position), 0
                    if not data:
                        return
                size = int.from_bytes(data[at : at + 4], "little")
                if len(data) - at < size <= LARGEST_DOCUMENT_BYTES:
                    data, at = data[at:] + self._read(file, max(READ_BYTES, size), position), 0
                end = at + size
                if not 5 <= size <= LARGEST_DOCUMENT_BYTES or end > len(data) or data[end - 1]:
                    raise Broken(f"{self.path}: document {where} at byte {position} is damaged, or the file ends in it")
                position += size
                yield Row(data[at:end], where, position)
                at = end

    def _read(self, file: BinaryIO, size: int, position: int) -> bytes:
        try:
            return file.read(size)
        except (OSError, EOFError) as error:
            raise Broken(f"{self.path}: cannot read on at byte {position}: {error}") from None


class JsonFile(_File):
    """Extended JSON: documents in lines of their own, or in several lines each, or as the elements of an array.

    The documents of one line, or of lines that belong together, have one mark, and are counted behind it.
    """

    unit = "line"

    def rows(self, mark: Mark) -> Iterator[AnyRow]:
        for number, entry in enumerate(self._all_rows(mark)):
            if number >= int(mark.get("skip", 0)):
                yield entry

    def _all_rows(self, mark: Mark) -> Iterator[AnyRow]:
        file, position, where = self._at(mark)
        chunk = _Chunk(position, where)
        with file:
            for line in self._lines(file, position):
                where += 1
                position += len(line)
                if chunk.lines and line[:1] == b"{":
                    # An indented document has no such line: the one before does not end.
                    yield from chunk.entries(position - len(line), where - 1)
                chunk.add(line, is_first=where == 1)
                if chunk.depth <= 0:
                    yield from chunk.entries(position, where)
        yield from chunk.entries(position, where)

    def _lines(self, file: BinaryIO, position: int) -> Iterator[bytes]:
        while True:
            try:
                line = file.readline(LONGEST_LINE_BYTES)
            except (OSError, EOFError) as error:
                raise Broken(f"{self.path}: cannot read on at byte {position}: {error}") from None
            if not line:
                return
            if len(line) == LONGEST_LINE_BYTES:
                raise Broken(
                    f"{self.path}: the line at byte {position} has more than {LONGEST_LINE_BYTES} bytes: "
                    "write one document in each line, for example with: jq -c '.[]'"
                )
            position += len(line)
            yield line


class _Chunk:
    """Lines that belong together, because brackets are open."""

    def __init__(self, start: int, where: int) -> None:
        self.lines: list[bytes] = []
        self.depth = 0
        self._start = start
        self._where = where

    def add(self, line: bytes, *, is_first: bool) -> None:
        """The next line; around documents, the brackets and commas of an array mean nothing."""
        text = line.removeprefix(_MARK) if is_first else line
        if not self.lines:
            text = text.lstrip(_BETWEEN)
            if text[:1] == b"[":
                text = text[1:].lstrip(_BETWEEN)
            if not text or text.rstrip(_BETWEEN) == b"]":
                return
            stripped = text.rstrip(_BETWEEN)
            if stripped[:1] == b"{" and stripped[-1:] == b"}":
                text = stripped
        self.lines.append(text)
        self.depth += _depth(text)

    def entries(self, end: int, where: int) -> Iterator[AnyRow]:
        """The documents of the lines, which end at ``end`` with line ``where``; then begins a new chunk."""
        lines, start, before = self.lines, self._start, self._where
        self.lines, self.depth, self._start, self._where = [], 0, end, where
        if not lines:
            return
        text = b"".join(lines)
        texts = [text] if len(lines) == 1 and _is_one(text) else _split(text)
        for number, each in enumerate(texts, 1):
            is_last = number == len(texts)
            place, skip = (end, 0) if is_last else (start, number)
            line = where if is_last else before
            try:
                yield Row(from_json(each), line if is_last else before, place, skip)
            except ValueError as error:
                yield BadRow(
                    line, place, f"line {before + 1}: {error}" if not is_last else str(error), _shown(each), skip
                )


def _is_one(text: bytes) -> bool:
    """Whether a line is one document, as in nearly all files; the parser says so fastest."""
    return text[:1] == b"{" and b"}{" not in text and b"},{" not in text and b"}, {" not in text


def _split(text: bytes) -> list[bytes]:
    """The documents in a text; what is between them, other than commas and brackets, counts as one, too."""
    found: list[bytes] = []
    depth = start = 0
    for token in _TOKENS.finditer(text):
        sign = token.group()
        if sign in (b"{", b"["):
            if depth == 0 and sign == b"{":
                _between(found, text[start : token.start()])
                start = token.start()
            depth += sign == b"{" or depth > 0
        elif sign in (b"}", b"]") and depth:
            depth -= 1
            if depth == 0:
                found.append(text[start : token.end()])
                start = token.end()
    _between(found, text[start:])
    return found


def _between(found: list[bytes], text: bytes) -> None:
    if text.strip(_BETWEEN + b"[]"):
        found.append(text.strip())


def _depth(text: bytes) -> int:
    """How many more braces are opened than closed outside of texts."""
    plain = _TEXTS.sub(b"", text) if b'"' in text else text
    return plain.count(b"{") - plain.count(b"}")


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "replace")[:SHOWN_CHARACTERS]


def shown_document(document: bytes) -> str:
    """A BSON document as extended JSON, or in hexadecimal digits if it is none."""
    try:
        decoded = bson.decode(document, codec_options=CODEC)
        return json_util.dumps(decoded, json_options=json_util.CANONICAL_JSON_OPTIONS)[:SHOWN_CHARACTERS]
    except Exception:  # noqa: BLE001  (whatever is wrong with it)
        return json.dumps({"hex": document[: SHOWN_CHARACTERS // 2].hex()})
