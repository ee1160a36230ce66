"""Verifies a compressed or joined bucket before it replaces the stored one.

A bug in the encoder would silently lose acknowledged measurements. So the new form is decoded by independent code and
compared bit for bit with the stored form. Readers find a bucket by its summaries, so these are compared with its rows.
If anything differs, the new form is not written, and the stored form stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from catalog import kernel, parts
from catalog.errors import InvariantViolated


class Differs(InvariantViolated):
    """A new form of a bucket differs from the stored one. The message contains no values."""


JoinParts = Callable[[Sequence[bytes], bytes, bytes, bytes | None, int], bytes]
"""Makes one document of parts, as ``catalog.parts.join`` does."""


@dataclass(frozen=True, slots=True)
class Forms:
    """Converts stored buckets.

    ``noticed`` is called for each wrong result and each error of our own, in the thread of the event loop.
    """

    noticed: Callable[[Exception], None]
    compress: Callable[[bytes, bytes], bytes | None] = kernel.compressed
    merge: JoinParts = parts.join

    def compressed(self, document: bytes, time_field: bytes) -> bytes | None:
        """The compressed form of a bucket; ``None`` where there is none that is smaller.

        :raises ValueError: as ``catalog.kernel.compression.compressed``
        :raises Differs: what was made is not this bucket
        """
        smaller = self.compress(document, time_field)
        if smaller is not None and not kernel.same_rows(document, smaller, time_field):
            raise Differs("the compressed bucket differs from the stored one; keeping the stored one")
        if smaller is not None and not kernel.has_true_header(document, time_field):
            # The compressed form has the same ones, as was compared.
            raise Differs("the summaries of a bucket do not match its rows; keeping it uncompressed")
        return smaller

    def merged(
        self, documents: Sequence[bytes], joined_id: bytes, time_field: bytes, meta_field: bytes | None, max_rows: int
    ) -> bytes:
        """One bucket of these parts.

        :raises ValueError: as ``catalog.parts.join``
        :raises Differs: what was made does not hold each of their rows once
        """
        joined = self.merge(documents, joined_id, time_field, meta_field, max_rows)
        if not kernel.holds_parts(joined, documents, time_field):
            raise Differs("the joined bucket does not hold its parts; keeping the parts")
        if not kernel.has_true_header(joined, time_field):
            raise Differs("the summaries of the joined bucket do not match its rows; keeping the parts")
        return joined
