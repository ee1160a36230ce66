"""What the plans of reads depend on in addition to the command and its collection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from catalog.namespaces import Namespace, VirtualCollection
from proxy.reads.cursor_names import CursorNames
from rewrite.profile import Profile


class PlanContext:
    """The capabilities of the backend, the cursors on buckets, and what this process has written."""

    def __init__(
        self,
        profile: Callable[[], Profile],
        cursors: CursorNames,
        holds_extended_range: Callable[[Namespace], bool],
    ) -> None:
        """``holds_extended_range``: whether this process has written times for which bucket ids are not in order."""
        self._profile = profile
        self._holds_extended_range = holds_extended_range
        self.cursors = cursors

    @property
    def profile(self) -> Profile:
        """The version and capabilities of the backend."""
        return self._profile()

    def as_written(self, collection: VirtualCollection) -> VirtualCollection:
        """``collection`` with ``extended_range`` if this process has written such times since the listing (Q12)."""
        if collection.extended_range or not self._holds_extended_range(collection.namespace):
            return collection
        return replace(collection, extended_range=True)
