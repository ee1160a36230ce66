"""Decodes compressed columns (W140-W149), to check them before they are written.

The Python form of these functions of ``catalog.kernel``. It was written from the format alone and shares no code with
``catalog.kernel.column``, which encodes columns, so that a bug there is not repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from catalog.bson import raw

_SLOTS = (0, 60, 30, 20, 15, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1)
_BITS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60)
_EXTENDED = {
    **{(7, at): (bits, 10 - at, 4, 1) for at, bits in enumerate((2, 3, 4, 5, 7, 10, 14, 24, 52), 1)},
    **{(8, at): (bits, 8 - at, 4, 4) for at, bits in enumerate((4, 5, 7, 10, 14, 24, 52), 1)},
    **{(8, at): (bits, 14 - at, 5, 4) for at, bits in enumerate((4, 6, 9, 13, 23, 51), 8)},
}
"""Selector and extension → bits of a value, slots, bits that count zeros, and how many zeros one counts for (W142)."""
_REPETITION = 15
_SCALES = {0x90: 1.0, 0xA0: 10.0, 0xB0: 100.0, 0xC0: 10_000.0, 0xD0: 100_000_000.0}
_SECTIONS = {0xF1: raw.OBJECT, 0xF2: raw.ARRAY}
_PACED = frozenset((raw.DATE, raw.TIMESTAMP, raw.OBJECT_ID))
_INTEGERS = {raw.INT32: 4, raw.INT64: 8, raw.BOOL: 1}
_ID_BYTES = (11, 3, 10, 2, 9, 1, 0)
_MODULUS = 1 << 64
_double = Struct("<d")


class NotAColumn(ValueError):
    """The bytes are not a compressed column."""


def _signed(number: int) -> int:
    return -(number >> 1) - 1 if number & 1 else number >> 1


class _Source:
    """A column, or a leaf of its objects: raw values that wait, and the element before the next one."""

    def __init__(self, element: bytes | None) -> None:
        self.element = element
        self._waiting: Iterator[int | None] = iter(())
        self._latest: int | None = 0
        self._repeatable = element is not None
        self._control = 0x80
        self._pace = 0
        self._whole = 0

    def literal(self, element: bytes) -> None:
        self.element, self._latest, self._repeatable, self._pace = element, 0, True, 0

    def blocks(self, control: int, blocks: bytes) -> None:
        self._control = control
        self._waiting = self._raw_values(blocks)
        if control in _SCALES:
            if self.element is None or self.element[0] != raw.DOUBLE:
                raise NotAColumn("a scale without a double")
            (number,) = _double.unpack(self.element[1:])
            product = number * _SCALES[control]
            if not abs(product) <= 2.0**53:
                raise NotAColumn("a double that has no scale")
            self._whole = math.floor(abs(product))
            self._whole += abs(product) - self._whole >= 0.5
            self._whole = -self._whole if product < 0 else self._whole
            if _double.pack(self._whole / _SCALES[control]) != self.element[1:]:
                raise NotAColumn("a double that has no scale")

    def _raw_values(self, blocks: bytes) -> Iterator[int | None]:
        for at in range(0, len(blocks), 8):
            block = int.from_bytes(blocks[at : at + 8], "little")
            selector, extension = block & 15, block >> 4 & 15
            if selector == _REPETITION:
                if not self._repeatable or block >> 8:
                    raise NotAColumn("nothing to repeat")
                yield from (self._latest for _ in range((extension + 1) * 120))
                continue
            wide = selector in (7, 8)
            zero_bits = unit = 0
            if wide and extension:
                if (selector, extension) not in _EXTENDED:
                    raise NotAColumn("an unknown block")
                bits, slots, zero_bits, unit = _EXTENDED[selector, extension]
            else:
                bits, slots = _BITS[selector], _SLOTS[selector]
            if not slots:
                raise NotAColumn("an unknown block")
            packed = block >> (8 if wide else 4)
            width = bits + zero_bits
            for slot in range(slots):
                value = packed >> slot * width & (1 << width) - 1
                skipped = value == (1 << width) - 1
                zeros = (value & (1 << zero_bits) - 1) * unit
                self._latest = None if skipped else (value >> zero_bits) << zeros & (1 << 128) - 1
                self._repeatable = True
                yield self._latest

    def take(self) -> tuple[bool, bytes | None]:
        """Whether a value was left, and the value; ``None`` for a skip."""
        for number in self._waiting:
            if number is None:
                return True, None
            self.element = self._after(number)
            return True, self.element
        return False, None

    def _after(self, number: int) -> bytes:
        before = self.element
        if before is None:
            raise NotAColumn("nothing to differ from")
        kind = before[0]
        if not number and kind not in _PACED:
            return before
        if kind in (raw.STRING, raw.CODE):
            text = before[5:-1]
            value = 0 if len(text) > 16 or text[:1] == b"\0" else int.from_bytes(text, "big")
            value = value + _signed(number) & (1 << 128) - 1
            return before[:1] + raw.string_value(value.to_bytes((value.bit_length() + 7) // 8, "big"))[1:]
        if kind in (raw.BINARY, raw.DECIMAL128):
            start = 6 if kind == raw.BINARY else 1
            if len(before) - start > 16:
                raise NotAColumn("bytes that are no number")
            value = int.from_bytes(before[start:], "little") + _signed(number) & (1 << 128) - 1
            return before[:start] + _fitting(value, len(before) - start)
        if number >= _MODULUS:
            raise NotAColumn("a step that is too large")
        step = _signed(number)
        if kind in _PACED:
            self._pace = (self._pace + step) % _MODULUS
            if kind != raw.OBJECT_ID:
                value = (int.from_bytes(before[1:], "little") + self._pace) % _MODULUS
                return before[:1] + value.to_bytes(8, "little")
            made = bytearray(before)
            value = int.from_bytes(bytes(before[1 + at] for at in _ID_BYTES), "little")
            for at, byte in zip(_ID_BYTES, _fitting((value + self._pace) % _MODULUS, 7), strict=True):
                made[1 + at] = byte
            return bytes(made)
        if kind == raw.DOUBLE:
            return b"\x01" + self._double(before, step)
        if kind in _INTEGERS:
            value = int.from_bytes(before[1:], "little", signed=kind != raw.BOOL) + step
            if kind == raw.INT64:
                return before[:1] + (value % _MODULUS).to_bytes(8, "little")
            if kind == raw.BOOL and value in (0, 1):
                return before[:1] + bytes((value,))
            if kind == raw.INT32 and -(2**31) <= value < 2**31:
                return before[:1] + raw.pack_int32(value)
        raise NotAColumn("a step of a value that has none")

    def _double(self, before: bytes, step: int) -> bytes:
        if self._control == 0x80:
            return ((int.from_bytes(before[1:], "little") + step) % _MODULUS).to_bytes(8, "little")
        self._whole = (self._whole + step + 2**63) % _MODULUS - 2**63
        return _double.pack(self._whole / _SCALES[self._control])


def _fitting(value: int, size: int) -> bytes:
    if value >> 8 * size:
        raise NotAColumn("a number that is too large")
    return value.to_bytes(size, "little")


@dataclass(slots=True)
class _Bytes:
    """The stream and the read position."""

    stream: bytes
    at: int = 0

    def next_control(self) -> int:
        if self.at >= len(self.stream):
            raise NotAColumn("a column without end")
        return self.stream[self.at]

    def value_for(self, source: _Source) -> tuple[bool, bytes | None]:
        """The next value of a source; false at the end or at a section, which is not consumed."""
        while True:
            there, value = source.take()
            if there:
                return True, value
            control = self.next_control()
            if control == 0 or control in _SECTIONS:
                return False, None
            if control < 0x20 or control in (raw.MAX_KEY, raw.MIN_KEY):
                if self.stream[self.at + 1 : self.at + 2] != b"\0":
                    raise NotAColumn("a literal with a name")
                start = self.at + 2
                self.at = raw.value_end(self.stream, control, start, len(self.stream))
                value = bytes((control,)) + self.stream[start : self.at]
                source.literal(value)
                return True, value
            if not 0x80 <= control < 0xE0:
                raise NotAColumn("an unknown control byte")
            end = self.at + 1 + 8 * ((control & 15) + 1)
            if end > len(self.stream):
                raise NotAColumn("blocks cut short")
            source.blocks(control & 0xF0, self.stream[self.at + 1 : end])
            self.at = end


_Branch = list[tuple[bytes, "_Source | tuple[int, _Branch]"]]


def _sources(document: bytes, levels: int = 200) -> _Branch:
    if not levels:
        raise NotAColumn("a reference that is too deep")
    return [
        (name, (value[0], _sources(value[1:], levels - 1)) if value[0] in raw.NESTED_TYPES else _Source(value))
        for name, value in raw.iter_elements(document)
    ]


class _SectionEnded(Exception):
    """The stream has ended where a row would begin."""


class _Section:
    """Rows that share a reference document."""

    def __init__(self, stream: _Bytes, reference: _Branch) -> None:
        self._stream = stream
        self._reference = reference
        self._is_first = True

    def row(self) -> bytes | None:
        """The next row as a document; ``None`` for a row without a value."""
        self._is_first = True
        fields = self._fields(self._reference)
        if self._is_first:
            raise NotAColumn("a reference without leaves")
        return raw.document(fields) if fields else None

    def _fields(self, branch: _Branch) -> list[bytes]:
        fields: list[bytes] = []
        for name, node in branch:
            if isinstance(node, tuple):
                kind, inner = node
                made = self._fields(inner)
                if made or not inner:
                    fields.append(raw.element(name, bytes((kind,)) + raw.document(made)))
                continue
            there, value = self._stream.value_for(node)
            if not there:
                if self._is_first and self._stream.next_control() == 0:
                    raise _SectionEnded
                raise NotAColumn("a row cut short")
            self._is_first = False
            if value is not None:
                fields.append(raw.element(name, value))
        return fields


def iter_cells(stream: bytes) -> Iterator[bytes | None]:
    """The element value of each row of a compressed column, ``None`` if the row has none.

    :raises ValueError: the bytes are not a compressed column
    """
    position = _Bytes(stream)
    source = _Source(None)
    while True:
        there, value = position.value_for(source)
        if there:
            yield value
            continue
        control = position.next_control()
        if not control:
            if position.at + 1 != len(stream):
                raise NotAColumn("something after the end")
            return
        start = position.at + 1
        position.at = raw.value_end(stream, raw.OBJECT, start, len(stream))
        section = _Section(position, _sources(stream[start : position.at]))
        try:
            while True:
                row = section.row()
                yield None if row is None else bytes((_SECTIONS[control],)) + row
        except _SectionEnded:
            position.at += 1
            source = _Source(None)


def column_cells(stream: bytes, rows: int) -> list[bytes | None]:
    """The cells of a column with exactly ``rows`` rows; raises ``ValueError`` otherwise."""
    cells: list[bytes | None] = []
    for cell in iter_cells(stream):
        if len(cells) == rows:
            raise NotAColumn("more rows than expected")
        cells.append(cell)
    if len(cells) < rows:
        raise NotAColumn("fewer rows than expected")
    return cells
