"""Encodes a column in the server's compressed form (W6, W140-W148).

A part of the Python form of ``compressed`` in ``catalog.kernel``. A column is a stream of literals and of blocks of
small integers, most of which are differences: a *raw* value of 0 repeats the previous value or difference. Objects and
arrays are split, and each of their leaves has its own stream (W147).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from catalog.bson import raw
from catalog.kernel.interleaving import Incompressible, Section, sections

_SKIP = -1
_REPEATED = 120
_BLOCKS_PER_CONTROL = 16
_SCALES = ((0x90, 1.0), (0xA0, 10.0), (0xB0, 100.0), (0xC0, 1e4), (0xD0, 1e8))
_UNSCALED = 0x80
_DOUBLE = bytes((raw.DOUBLE,))
_WORTH_A_SCALE = 4
"""A scale is used for at least this many doubles in a row, or for all up to the end."""
_EXACT = 2.0**53
_INTERLEAVED = {raw.OBJECT: 0xF1, raw.ARRAY: 0xF2}
_PLAIN_WIDTHS = {raw.INT32: 4, raw.INT64: 8, raw.BOOL: 1, raw.DECIMAL128: 16}
_PACED = frozenset((raw.DATE, raw.TIMESTAMP, raw.OBJECT_ID))
_double = Struct("<d").unpack_from

_PACKINGS: tuple[tuple[int, int, int, int, int], ...] = (
    *((selector, bits, 0, 0, slots) for selector, bits, slots in ((1, 1, 60), (2, 2, 30), (3, 3, 20), (4, 4, 15))),
    *((selector, bits, 0, 0, slots) for selector, bits, slots in ((5, 5, 12), (6, 6, 10))),
    (0x17, 2, 4, 1, 9),
    *((0x07, 7, 0, 0, 8), (0x27, 3, 4, 1, 8)),
    *((0x08, 8, 0, 0, 7), (0x37, 4, 4, 1, 7), (0x18, 4, 4, 4, 7)),
    *((0x09, 10, 0, 0, 6), (0x47, 5, 4, 1, 6), (0x28, 5, 4, 4, 6), (0x88, 4, 5, 4, 6)),
    *((0x0A, 12, 0, 0, 5), (0x57, 7, 4, 1, 5), (0x38, 7, 4, 4, 5), (0x98, 6, 5, 4, 5)),
    *((0x0B, 15, 0, 0, 4), (0x67, 10, 4, 1, 4), (0x48, 10, 4, 4, 4), (0xA8, 9, 5, 4, 4)),
    *((0x0C, 20, 0, 0, 3), (0x77, 14, 4, 1, 3), (0x58, 14, 4, 4, 3), (0xB8, 13, 5, 4, 3)),
    *((0x0D, 30, 0, 0, 2), (0x87, 24, 4, 1, 2), (0x68, 24, 4, 4, 2), (0xC8, 23, 5, 4, 2)),
    *((0x0E, 60, 0, 0, 1), (0x97, 52, 4, 1, 1), (0x78, 52, 4, 4, 1), (0xD8, 51, 5, 4, 1)),
)
"""Lowest byte of a block, bits of a value, bits that count its trailing zeros, in units of, slots (W142)."""


def _slot(value: int, bits: int, count_bits: int, unit: int) -> int | None:
    """The contents of a slot for a raw value, ``None`` if it does not fit."""
    if value == _SKIP:
        return (1 << bits + count_bits) - 1
    if not count_bits:
        return value if value < (1 << bits) - 1 else None
    zeros = 0
    most = (1 << count_bits) - 1
    if value:
        zeros = min(((value & -value).bit_length() - 1) // unit, most)
        value >>= zeros * unit
    if value >> bits or (value == (1 << bits) - 1 and zeros == most):
        return None
    return value << count_bits | zeros


def _fits(value: int) -> bool:
    """Whether any block can contain a raw value."""
    return any(_slot(value, *packing[1:4]) is not None for packing in _PACKINGS[-4:])


class _Stream:
    """The stream of a column, or of a leaf of its objects, written so far.

    A *piece* is what a reader reads at once: its first row and its bytes.
    """

    __slots__ = ("_control", "_latest", "_row", "_values", "pieces")

    def __init__(self, latest: int | None) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self._row = 0
        """The first row of the next piece."""
        self._values: list[int] = []
        self._control = 0
        """Kind of the blocks that ``_values`` will make; 0 if any kind will do."""
        self._latest = latest
        """The raw value that a run would repeat."""

    def literal(self, value: bytes) -> None:
        """Write an element value as a literal."""
        self.flush()
        self.pieces.append((self._row, value[:1] + b"\0" + value[1:]))
        self._row += 1
        self._latest = 0

    def add(self, value: int, control: int) -> None:
        """Add a raw value, for blocks of this kind."""
        if self._control not in (0, control):
            self.flush()
            self._latest = None
        self._control = control
        self._values.append(value)

    def skip(self) -> None:
        """Add a row without a value."""
        self._values.append(_SKIP)

    def flush(self) -> None:
        """Write the blocks."""
        values, blocks, at = self._values, list[tuple[int, int]](), 0
        while at < len(values):
            run = self._run(at)
            if run:
                blocks.append((at, 0xF | (run - 1) << 4))
                at += run * _REPEATED
                continue
            for head, bits, count_bits, unit, slots in _PACKINGS:
                if slots > len(values) - at:
                    continue
                block, shift = head, 8 if head & 0xF in (7, 8) else 4
                for value in values[at : at + slots]:
                    slot = _slot(value, bits, count_bits, unit)
                    if slot is None:
                        break
                    block |= slot << shift
                    shift += bits + count_bits
                else:
                    blocks.append((at, block))
                    at += slots
                    self._latest = values[at - 1]
                    break
        for first in range(0, len(blocks), _BLOCKS_PER_CONTROL):
            together = blocks[first : first + _BLOCKS_PER_CONTROL]
            control = bytes(((self._control or _UNSCALED) + len(together) - 1,))
            piece = control + b"".join(block.to_bytes(8, "little") for _, block in together)
            self.pieces.append((self._row + together[0][0], piece))
        self._row += len(values)
        values.clear()
        self._control = 0

    def _run(self, at: int) -> int:
        """How many times 120 the latest value is repeated from here on, up to the maximum of one block."""
        values, end = self._values, at
        while end < len(values) and values[end] == self._latest and end - at < 16 * _REPEATED:
            end += 1
        return (end - at) // _REPEATED


def _zigzag(difference: int, bits: int = 64) -> int:
    """A difference modulo ``2**bits`` as a raw value (W143)."""
    mask = (1 << bits) - 1
    difference &= mask
    return (difference << 1 & mask) ^ (mask if difference >> bits - 1 else 0)


def _number(value: bytes) -> int | None:
    """The number whose differences represent values of this type, ``None`` if there is none (W144, W145)."""
    kind = value[0]
    if kind in _PLAIN_WIDTHS:
        return int.from_bytes(value[1:], "little", signed=kind in (raw.INT32, raw.INT64))
    if kind in (raw.STRING, raw.CODE):
        text = value[5:-1]
        return int.from_bytes(text, "big") if len(text) <= 16 and text[:1] != b"\0" else None
    if kind == raw.BINARY:
        return int.from_bytes(value[6:], "little") if len(value) <= 22 and value[5] != 2 else None
    return None


def _plain(previous: bytes, value: bytes) -> int | None:
    """The raw value of an element after another of its type; ``None`` if it needs a literal."""
    if value == previous:
        return 0
    number = _number(value)
    if number is None or (value[0] == raw.BINARY and (len(value) != len(previous) or value[5] != previous[5])):
        return None
    difference = number - (_number(previous) or 0)
    return _zigzag(difference, 64 if value[0] in (raw.INT32, raw.INT64, raw.BOOL) else 128) or None


def _pace(value: bytes) -> int:
    """The number of a value whose differences of differences count (W144)."""
    if value[0] == raw.OBJECT_ID:
        o = value[1:]
        return int.from_bytes(bytes((o[11], o[3], o[10], o[2], o[9], o[1], o[0])), "little")
    return int.from_bytes(value[1:], "little")


def _scaled(number: float, scale: float) -> int | None:
    """A double as an integer from which the identical bits can be restored, if there is one."""
    product = abs(number * scale)
    if not product <= _EXACT:
        return None
    whole = int(product)
    if product - whole >= 0.5:
        whole += 1
    if number < 0:
        whole = -whole
    return whole if _bits(whole / scale) == _bits(number) else None


def _bits(number: float) -> bytes:
    return Struct("<d").pack(number)


def _scales(numbers: Sequence[float]) -> list[int]:
    """For each double but the first the index of the scale that it is written in, -1 for none."""
    lengths = [[0] * (len(numbers) + 1) for _ in _SCALES]
    for index, (_, scale) in enumerate(_SCALES):
        for at in range(len(numbers) - 1, -1, -1):
            if _scaled(numbers[at], scale) is not None:
                lengths[index][at] = lengths[index][at + 1] + 1
    chosen = [-1]
    while len(chosen) < len(numbers):
        before = len(chosen) - 1
        best = max(range(len(_SCALES)), key=lambda index: lengths[index][before])
        length = lengths[best][before]
        if length > 1 and (length > _WORTH_A_SCALE or before + length == len(numbers)):
            chosen += [best] * (length - 1)
        else:
            chosen.append(-1)
    return chosen


def encode_column(cells: Sequence[bytes | None]) -> bytes | None:
    """The stream of a column; a cell is an element value, or ``None`` if the row has none.

    Returns ``None`` if there are values that cannot be compressed.

    :raises ValueError: an object is not BSON
    """
    try:
        return b"".join(_section(section) for section in sections(cells)) + b"\0"
    except Incompressible:
        return None


def _section(section: Section) -> bytes:
    if section.reference is None:
        return b"".join(piece for _, piece in _pieces(section.cells))
    pieces = [
        (row, leaf, piece)
        for leaf, (reference, cells) in enumerate(section.leaf_columns())
        for row, piece in _pieces(cells, reference)
    ]
    # A reader reads the next piece when the current leaf has no values left.
    body = b"".join(piece for _, _, piece in sorted(pieces))
    return bytes((_INTERLEAVED[section.reference.kind],)) + section.reference.document() + body + b"\0"


def _pieces(cells: Sequence[bytes | None], reference: bytes = b"") -> list[tuple[int, bytes]]:
    """The pieces of a stream; a reference counts as a value that was written before."""
    stream = _Stream(0 if reference else None)
    previous, pace = reference, 0
    scales = _scales([_double(reference, 1)[0], *_doubles(cells, 0)])[:0:-1] if reference[:1] == _DOUBLE else []
    for index, value in enumerate(cells):
        if value is None:
            stream.skip()
            continue
        kind = value[0]
        number: int | None = None
        control = _UNSCALED
        step = 0
        if kind == raw.DOUBLE:
            if previous[:1] != value[:1]:
                scales = _scales(_doubles(cells, index))[::-1]
            scale = scales.pop()
            if previous[:1] == value[:1]:
                number, control = _double_step(previous, value, scale)
        elif previous[:1] != value[:1]:
            pass
        elif kind in _PACED:
            if kind != raw.OBJECT_ID or value[5:10] == previous[5:10]:
                step = _pace(value) - _pace(previous)
                number = _zigzag(step - pace)
        else:
            number = _plain(previous, value)
        if number is not None and _fits(number):
            stream.add(number, control)
            pace = step
        else:
            stream.literal(value)
            pace = 0
        previous = value
    stream.flush()
    return stream.pieces


def _doubles(cells: Sequence[bytes | None], start: int) -> list[float]:
    """The doubles from ``start`` on, up to a value of another type."""
    numbers: list[float] = []
    for value in cells[start:]:
        if value is not None:
            if value[0] != raw.DOUBLE:
                break
            numbers.append(_double(value, 1)[0])
    return numbers


def _double_step(previous: bytes, value: bytes, scale: int) -> tuple[int, int]:
    """Raw value and kind of blocks of a double after another."""
    if scale < 0:
        return _zigzag(int.from_bytes(value[1:], "little") - int.from_bytes(previous[1:], "little")), _UNSCALED
    control, factor = _SCALES[scale]
    after, before = _scaled(_double(value, 1)[0], factor), _scaled(_double(previous, 1)[0], factor)
    return _zigzag((after or 0) - (before or 0)), control
