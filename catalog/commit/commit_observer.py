"""What looks at commits without taking part in them (``proxy.request.commit_spans``)."""

from __future__ import annotations

from typing import Protocol

from catalog.commit.sending import Commit
from catalog.ports import BulkOutcome


class ObservedCommit(Protocol):
    """One commit that is looked at."""

    def ended(self, outcome: BulkOutcome | None) -> None:
        """Its batches are settled, placed again, or in doubt. ``None``: it was cancelled or failed. Must not raise."""
        ...


class CommitObserver(Protocol):
    """Sees every commit."""

    def began(self, commit: Commit) -> ObservedCommit | None:
        """A commit is about to be sent. ``None`` if its end is of no interest. Must not raise."""
        ...
