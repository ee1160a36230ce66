"""How large the steps of joining may be, so that readers and writers do not wait long for one."""

from __future__ import annotations

from catalog.background.joining_pace import JoiningOptions
from catalog.growth.backlog import Backlog

FEWEST_DOCUMENTS = 160
"""A step may have this number of documents however slow commits are: each also waits for a lock, whatever its size."""
SMALLEST, LARGEST = 0.25, 2.0
"""Limits of the part of these documents that a step has if little waits, or more than should."""
WEIGHT = 0.25
"""Of the latest commit in the average."""


class StepSize:
    """The limits of a step, by what recent commits took, and by how much waits.

    A transaction is carried out before its commit, which takes the same time whatever its size. A standalone carries
    the whole step out in one command, and nobody else reads or writes meanwhile. There, a commit takes
    ``JoiningOptions.window_seconds`` on average if as much waits as should at most. If less does, steps are smaller,
    so that nobody waits long; if more does, they are larger, so that fewer parts are made between commits than joined.
    While joins are behind, each commit has to wait for the inserts of many documents that go on instead of parts.
    """

    def __init__(self, options: JoiningOptions, backlog: Backlog) -> None:
        self._options = options
        self._backlog = backlog
        self._document_seconds: float | None = None
        """Average of a document; ``None`` before the first commit."""

    def committed(self, documents: int, seconds: float) -> None:
        """A commit that carried out a step of this many documents took this time; 0 if it was carried out before."""
        latest, average = seconds / documents, self._document_seconds
        self._document_seconds = latest if average is None else average + WEIGHT * (latest - average)

    @property
    def documents(self) -> int:
        """Maximum number of documents of a step."""
        most, average = self._options.group_parts, self._document_seconds
        if average == 0.0:
            return most
        in_a_window = 0.0 if average is None else self._options.window_seconds / average
        scale = LARGEST if self._backlog.is_behind else min(LARGEST, max(SMALLEST, self._backlog.pressure))
        return min(most, int(scale * max(FEWEST_DOCUMENTS, in_a_window)))

    @property
    def parts_of_a_bucket(self) -> int:
        """Maximum number of parts of one bucket that a step takes, where the commit carries it out.

        It is no smaller if little waits: if there are always readers, each step of a bucket has to wait for a moment
        without them.
        """
        return max(FEWEST_DOCUMENTS, self.documents)

    @property
    def rows(self) -> int:
        """Maximum number of their rows."""
        return self._options.group_rows * self.documents // self._options.group_parts
