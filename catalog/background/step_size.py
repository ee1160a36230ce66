"""How large the steps of joining may be, so that readers and writers do not wait long for one."""

from __future__ import annotations

from catalog.background.joining_pace import JoiningOptions

FEWEST_DOCUMENTS = 32
"""However slow commits are, a step may have so many documents, because each step has a cost of its own."""
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
        self._document_seconds = 0.0
        """Average of a document."""

    def committed(self, documents: int, seconds: float) -> None:
        """A commit that carried out a step of so many documents took this time."""
        each_seconds = seconds / documents
        if self._document_seconds:
            self._document_seconds += WEIGHT * (each_seconds - self._document_seconds)
        else:
            self._document_seconds = each_seconds

    @property
    def documents(self) -> int:
        """Maximum number of documents of a step."""
        most = self._options.group_parts
        if not self._document_seconds:
            return most
        fitting = int(self._options.window_seconds / self._document_seconds)
        return min(most, max(FEWEST_DOCUMENTS, fitting))

    @property
    def rows(self) -> int:
        """Maximum number of their rows."""
        return self._options.group_rows * self.documents // self._options.group_parts
