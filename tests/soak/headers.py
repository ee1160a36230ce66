"""Whether what readers choose buckets by is true: the header of each stored bucket against its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from catalog.bson import raw
from catalog.kernel import decoding

SPANS: Mapping[str, tuple[int, int]] = {"seconds": (60, 3600), "minutes": (3600, 86_400), "hours": (86_400, 2_592_000)}
"""By granularity: what starts are rounded to and how much a bucket covers, both in seconds."""


def wrong_headers(documents: Iterable[bytes], options: Mapping[str, Any], kernel: Any) -> Iterator[str]:
    """What is wrong with which bucket; the summaries are judged by this form of the kernel."""
    for document in documents:
        try:
            wrong = list(_wrong(document, SPANS[options.get("granularity", "seconds")], kernel))
        except (ValueError, KeyError) as error:
            wrong = [repr(error)]
        if wrong:
            yield f"{'; '.join(wrong)}: {document.hex()[:20_000]}"


def _wrong(document: bytes, spans: tuple[int, int], kernel: Any) -> Iterator[str]:
    fields = raw.fields_of(document)
    control = raw.fields_of(fields[b"control"], 1)
    columns = raw.fields_of(fields[b"data"], 1)
    if control[b"version"][1] == 2:
        count = raw.unpack_int32(control[b"count"], 1)[0]
        columns = {name: _unpacked(column, count) for name, column in columns.items()}
    times = [raw.unpack_int64(value, 1)[0] for _, value in raw.iter_elements(columns[b"t"], 1)]
    if control[b"version"][1] == 2 and count != len(times):
        yield f"{count} rows counted, {len(times)} stored"
    start_ms = raw.unpack_int64(raw.fields_of(control[b"min"], 1)[b"t"], 1)[0]
    rounding, span = spans
    if start_ms % (rounding * 1000) or not all(start_ms <= time < start_ms + span * 1000 for time in times):
        yield f"from {start_ms} on, times {min(times)} to {max(times)}"
    if fields[b"_id"][1:5] != (start_ms // 1000 & 0xFFFFFFFF).to_bytes(4, "big"):
        yield "an id of another time"
    ends = [raw.element(name, control[name]) for name in (b"min", b"max")]
    plain = [
        raw.sub_document(b"control", [raw.element(b"version", b"\x10\1\0\0\0"), *ends]),
        *([raw.element(b"meta", fields[b"meta"])] if b"meta" in fields else []),
        raw.sub_document(b"data", [raw.element(name, column) for name, column in columns.items()]),
    ]
    if not kernel.has_true_header(raw.document(plain), b"t"):
        yield "summaries that are not those of the rows"


def _unpacked(column: bytes, rows: int) -> bytes:
    cells = enumerate(decoding.column_cells(column[6:], rows))
    return b"\x03" + raw.document(raw.element(b"%d" % row, value) for row, value in cells if value is not None)
