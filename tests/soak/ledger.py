"""What the writers of one collection were told, and whether that is what is stored."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.support.generated_rows import Row
from tests.support.raw_rows import digest_of, elements

Group = tuple[bytes, int]
"""The stored form of a meta field (a whole element, empty when there is none), and a tag."""
Key = tuple[bytes, bytes]
"""The meta element as it is stored, and the digest of all else."""


@dataclass
class Expected:
    """Rows of one group by digest: acknowledged ones, and those of which nobody knows."""

    sure: Counter[bytes] = field(default_factory=Counter)
    maybe: Counter[bytes] = field(default_factory=Counter)
    values: int = 0


class Ledger:
    """All rows of one collection. Deletes and changes of meta are told by whoever owns the tag or the meta."""

    def __init__(self, stored_metas: dict[bytes, bytes]) -> None:
        self.raw: dict[bytes, bytes] = {}
        self.rows = self.values = self.in_doubt = 0
        self._stored_metas = stored_metas
        self._groups: dict[Group, Expected] = defaultdict(Expected)
        self._lock = threading.Lock()

    def wrote(self, meta: bytes, tag: int, sure: Iterable[Row], maybe: Iterable[Row]) -> None:
        with self._lock:
            group = self._groups[self._stored_metas[meta], tag]
            for row in sure:
                group.sure[row.digest] += 1
                group.values += row.values
                self.raw[row.digest] = row.raw
                self.rows += 1
                self.values += row.values
            for row in maybe:
                group.maybe[row.digest] += 1
                self.raw[row.digest] = row.raw
                self.in_doubt += 1

    def deleted(self, *, meta: bytes | None = None, tag: int | None = None) -> int:
        """The acknowledged rows of a meta or tag are gone; the others may come yet."""
        gone = 0
        with self._lock:
            for group, expected in self._groups.items():
                if group[0] == meta or group[1] == tag:
                    gone += expected.sure.total()
                    expected.sure.clear()
                    expected.values = 0
        return gone

    def deleted_row(self, tag: int, digest: bytes) -> bool:
        """One acknowledged row of a tag is gone; whether it was there."""
        with self._lock:
            for group, expected in self._groups.items():
                if group[1] == tag and expected.sure[digest]:
                    expected.sure[digest] -= 1
                    return True
        return False

    def moved(self, old: bytes, new: bytes) -> None:
        """The meta field of all rows that had ``old`` is ``new`` now."""
        with self._lock:
            for group, expected in list(self._groups.items()):
                if group[0] == old:
                    other = self._groups[new, group[1]]
                    other.sure += expected.sure
                    other.maybe += expected.maybe
                    other.values += expected.values
                    expected.sure.clear()
                    expected.values = 0

    def compare(self, stored: Counter[Key]) -> tuple[int, Counter[Key], Counter[Key]]:
        """How many values are as they must be, which rows are missing, and which are there that must not."""
        sure, allowed = Counter[Key](), Counter[Key]()
        values = 0
        for (meta, _), expected in self._groups.items():
            values += expected.values
            for recognised, count in expected.sure.items():
                sure[meta, recognised] += count
            for recognised, count in (expected.sure + expected.maybe).items():
                allowed[meta, recognised] += count
        missing, strange = sure - stored, stored - allowed
        return (values if not missing and not strange else 0), missing, strange


def key_of(raw: bytes) -> Key:
    """Of a row as a server returned it."""
    meta, rest = b"", []
    for name, each in elements(raw):
        if name == b"m":
            meta = each
        else:
            rest.append((name, each))
    rest.sort()
    return meta, digest_of([each for _, each in rest])


def keys_of(documents: Iterable[bytes], kept: dict[Key, bytes] | None = None) -> Iterator[Key]:
    """The same of many; ``kept`` gets the rows themselves."""
    for raw in documents:
        key = key_of(raw)
        if kept is not None:
            kept[key] = raw
        yield key
