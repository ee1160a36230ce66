"""Splits objects and arrays of a column, so that each of their leaves is compressed like a column (W147).

Consecutive rows that fit one *reference* document are a section. The reference has all their fields in their order, and
the leaves of a row are found by walking both in parallel. While a section is young, missing fields are added to its
reference; afterwards a row that does not fit begins another section. A section is young up to ``2 * leaves + 1`` rows,
counting the leaves that the latest row was compared with. These rules were observed on 6.0.5.

Servers may fail to read a column in which a row without value follows, at any distance, one that lacks a branch of its
reference, or one with which a second section begins (W150). Such a column is not split at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from catalog.bson import raw

MAX_NODES = 1000
"""An object or reference with more fields, on all levels together, is not split."""
MAX_LEVELS = 100
MAX_DOCUMENT_LEVELS = 200
"""Maximum depth of a document; no server stores a deeper one."""
UNTOUCHABLE = frozenset((raw.MIN_KEY, raw.MAX_KEY, raw.CODE_WITH_SCOPE))
"""Not all servers support values of these types in compressed columns (W9, W149)."""


class Incompressible(Exception):
    """A column contains a value that cannot be compressed."""


@dataclass(slots=True, eq=False)
class Branch:
    """An object or array as a tree of its fields; a leaf is an element value."""

    kind: int
    fields: dict[bytes, Branch | bytes] = field(default_factory=dict[bytes, "Branch | bytes"])
    nodes: int = 1
    """Number of nodes: itself and everything inside."""
    leaves: int = 0
    holds_empty: bool = False
    """Whether it is or contains an empty object, which cannot be omitted if a row has none of its leaves."""
    before_empty: int = 0
    """Number of leaves before the first empty object."""

    @property
    def branches(self) -> int:
        """Number of branches: itself and the objects and arrays inside."""
        return self.nodes - self.leaves

    def document(self) -> bytes:
        """The BSON document, without a type byte."""
        return raw.document(
            raw.element(name, bytes((node.kind,)) + node.document() if isinstance(node, Branch) else node)
            for name, node in self.fields.items()
        )

    def add(self, name: bytes, node: Branch | bytes) -> None:
        """Append a field."""
        self.fields[name] = node
        if not isinstance(node, Branch):
            self.nodes += 1
            self.leaves += 1
            return
        if node.holds_empty and not self.holds_empty:
            self.before_empty = self.leaves + node.before_empty
            self.holds_empty = True
        self.nodes += node.nodes
        self.leaves += node.leaves


@dataclass(slots=True, eq=False)
class Section:
    """Consecutive rows that fit a reference or, without one, that are not split."""

    reference: Branch | None
    rows: list[Branch | None] = field(default_factory=list["Branch | None"])
    cells: list[bytes | None] = field(default_factory=list[bytes | None])

    def leaf_columns(self) -> Iterator[tuple[bytes, Sequence[bytes | None]]]:
        """For each leaf, its value in the reference and the values of the rows."""
        assert self.reference is not None
        rows = [list(_spread(self.reference, row)) for row in self.rows]
        return zip(_spread(self.reference, self.reference), zip(*rows, strict=True), strict=True)  # type: ignore[arg-type]


class _TooMuch(Exception):
    """There are more nodes or levels than the limit."""


class _Reading:
    """Splits one object completely, so that malformed data are always detected."""

    def __init__(self) -> None:
        self.nodes = 0
        self.repeats = False
        self.untouchable = False

    def branch(self, value: bytes, levels: int = MAX_LEVELS) -> Branch:
        self._count()
        branch = Branch(value[0])
        for name, inner in raw.iter_elements(value, 1):
            node: Branch | bytes = inner
            if inner[0] in raw.NESTED_TYPES:
                if levels == 1:
                    raise _TooMuch
                node = self.branch(inner, levels - 1)
            else:
                self._count()
                self.untouchable = self.untouchable or inner[0] in UNTOUCHABLE
            self.repeats = self.repeats or name in branch.fields
            branch.add(name, node)
        branch.holds_empty = branch.holds_empty or not branch.fields
        return branch

    def _count(self) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _TooMuch


def taken_apart(value: bytes) -> Branch | None:
    """An object or array as a tree; ``None`` if it is not split, because it is empty, too large or repeats a name.

    :raises Incompressible: it contains a value that cannot be compressed
    :raises ValueError: the bytes are not BSON
    """
    reading = _Reading()
    try:
        branch = reading.branch(value)
    except _TooMuch:
        if _holds_untouchable(value, MAX_DOCUMENT_LEVELS):
            raise Incompressible from None
        return None
    if reading.untouchable:
        raise Incompressible
    return branch if branch.fields and not reading.repeats else None


def _holds_untouchable(value: bytes, levels: int) -> bool:
    """Whether an object or array contains an ``UNTOUCHABLE`` value; raises ``ValueError`` for malformed BSON."""
    if not levels:
        raise ValueError("too deeply nested")
    found = False
    for _, inner in raw.iter_elements(value, 1):
        nested = inner[0] in raw.NESTED_TYPES and _holds_untouchable(inner, levels - 1)
        found = found or nested or inner[0] in UNTOUCHABLE
    return found


def walk(reference: Branch, row: Branch) -> tuple[bool, int]:
    """Whether the row fits, and the number of leaves of the reference that were compared.

    A row fits if it has no other fields than the reference, in its order, and can be restored from its leaves.
    """
    passed = 0
    if reference.kind != row.kind or bool(reference.fields) != bool(row.fields):
        return False, passed
    fields = iter(row.fields.items())
    name, inner = next(fields, (None, b""))
    for known, node in reference.fields.items():
        if known != name:
            if isinstance(node, Branch) and node.holds_empty:
                return False, passed + node.before_empty
            passed += node.leaves if isinstance(node, Branch) else 1
            continue
        if isinstance(node, Branch) and isinstance(inner, Branch):
            inside, leaves = walk(node, inner)
            passed += leaves
            if not inside:
                return False, passed
        elif isinstance(node, Branch) or isinstance(inner, Branch):
            return False, passed
        else:
            passed += 1
        name, inner = next(fields, (None, b""))
    return name is None, passed


def extended(reference: Branch, row: Branch) -> Branch | None:
    """The reference with its missing fields; ``None`` if the orders or kinds contradict each other.

    A field that is missing in the row or the reference must be one that can be omitted.
    """
    if reference.kind != row.kind or bool(reference.fields) != bool(row.fields):
        return None
    whole = Branch(reference.kind, holds_empty=not reference.fields)
    new = list(row.fields.items())
    places = {name: place for place, (name, _) in enumerate(new)}
    done = 0
    for name, node in reference.fields.items():
        place = places.get(name)
        if place is None:
            if isinstance(node, Branch) and node.holds_empty:
                return None
            whole.add(name, node)
            continue
        if place < done or not _add_new(whole, reference, new[done:place]):
            return None
        both = _both(node, new[place][1])
        if both is None:
            return None
        whole.add(name, both)
        done = place + 1
    return whole if _add_new(whole, reference, new[done:]) and whole.nodes <= MAX_NODES else None


def _both(node: Branch | bytes, other: Branch | bytes) -> Branch | bytes | None:
    if isinstance(node, Branch):
        return extended(node, other) if isinstance(other, Branch) else None
    return None if isinstance(other, Branch) else node


def _add_new(whole: Branch, reference: Branch, new: Sequence[tuple[bytes, Branch | bytes]]) -> bool:
    for name, node in new:
        if name in reference.fields or (isinstance(node, Branch) and node.holds_empty):
            return False
        whole.add(name, node)
    return True


def _spread(reference: Branch, row: Branch | None) -> Iterator[bytes | None]:
    """The leaves of a row that fits, in the order of the reference."""
    for name, node in reference.fields.items():
        inner = row.fields.get(name) if row is not None else None
        if isinstance(node, Branch):
            yield from _spread(node, inner if isinstance(inner, Branch) else None)
        else:
            yield inner if isinstance(inner, bytes) else None


class _Sections:
    """The current section and the previous ones."""

    def __init__(self) -> None:
        self.ended: list[Section] = []
        self._section = Section(None)
        self._young = False
        self._begun = 0
        """How many sections with a reference there are."""
        self._lacks_branch = False
        """Whether a row lacks a branch of its reference."""
        self.is_unreadable = False
        """Whether servers may fail to read the column (W150)."""

    def whole(self, cell: bytes | None) -> None:
        """Add a row that is not split, or that has no value."""
        reference = self._section.reference
        self.is_unreadable = self.is_unreadable or (cell is None and (self._lacks_branch or self._begun > 1))
        if cell is None and reference is not None and not reference.holds_empty:
            self._section.rows.append(None)
            return
        if reference is not None:
            self.end()
        self._section.cells.append(cell)

    def apart(self, row: Branch, cell: bytes) -> None:
        """Add a row that may be split."""
        reference = self._section.reference
        if reference is not None:
            fits, passed = walk(reference, row)
            larger = reference if fits else extended(reference, row) if self._young else None
            if larger is not None:
                self._compare(reference, larger, row)
                self._section.rows.append(row)
                self._section.reference = larger
                self._young = self._young and len(self._section.rows) < 2 * passed + 2
                return
        if not row.leaves:
            self.whole(cell)
            return
        self.end()
        self._section, self._young = Section(row, [row]), True
        self._begun += 1

    def _compare(self, reference: Branch, larger: Branch, row: Branch) -> None:
        """Record whether a row, or an earlier one because of the ``larger`` reference, lacks a branch."""
        has_grown = larger.branches != reference.branches
        self._lacks_branch = self._lacks_branch or has_grown or row.branches != larger.branches
        self.is_unreadable = self.is_unreadable or (has_grown and None in self._section.rows)

    def end(self) -> None:
        if self._section.rows or self._section.cells:
            self.ended.append(self._section)
        self._section = Section(None)


def sections(cells: Sequence[bytes | None]) -> list[Section]:
    """The sections of a column; every row is in exactly one.

    :raises Incompressible: as ``taken_apart``
    :raises ValueError: as ``taken_apart``
    """
    found = _Sections()
    for cell in cells:
        if cell is not None and cell[0] in UNTOUCHABLE:
            raise Incompressible
        row = taken_apart(cell) if cell is not None and cell[0] in raw.NESTED_TYPES else None
        if cell is None or row is None:
            found.whole(cell)
        else:
            found.apart(row, cell)
    found.end()
    return [Section(None, cells=list(cells))] if found.is_unreadable else found.ended
