"""How large the steps of joining may be, so that readers and writers do not wait long for one."""

from __future__ import annotations

from catalog.background.joining_pace import JoiningOptions

FEWEST_DOCUMENTS = 160
"""A step may have this number of documents however slow commits are: each also waits for a lock, whatever its size.

Before the first commit, it has no more.
"""
WEIGHT = 0.25
"""Of the latest commit in the average."""


class StepSize:
    """The limits of a step, by what recent commits took.

    A transaction is carried out before its commit, which takes the same time whatever its size. A standalone carries
    the whole step out in one command, and nobody else reads or writes meanwhile. There, a commit takes
    ``JoiningOptions.window_seconds`` on average.
    """

    def __init__(self, options: JoiningOptions) -> None:
        self._options = options
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
        if average is None:
            return min(most, FEWEST_DOCUMENTS)
        if not average:
            return most
        return min(most, max(FEWEST_DOCUMENTS, int(self._options.window_seconds / average)))

    @property
    def rows(self) -> int:
        """Maximum number of their rows."""
        return self._options.group_rows * self.documents // self._options.group_parts
