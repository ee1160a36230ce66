"""The cursors that clients open on buckets by the names of these, where no joins wait for readers."""

from __future__ import annotations

from catalog.namespaces import Namespace
from proxy.readers.active_readers import ActiveReaders, CountedReader
from proxy.readers.register import of_continued
from proxy.reads.cursor_names import CursorNames
from proxy.request.command import Command
from proxy.request.command_table import OPENS_CURSOR


class BucketCursors:
    """Records them; implements ``proxy.request.ports.Readers``."""

    def __init__(self) -> None:
        self.relayed = CursorNames()
        """Cursors of relayed commands."""
        self._active = ActiveReaders()

    def of_relayed(self, command: Command) -> CountedReader | None:
        """See ``Readers``; only what may leave such a cursor is a reader."""
        if (continued := of_continued(command, self._active, self.relayed)) is not None:
            return continued
        if command.name in OPENS_CURSOR and command.namespace.is_buckets:
            return CountedReader(self._active, command.namespace, self.relayed)
        return None

    def of_rewritten(self, namespace: Namespace) -> CountedReader | None:
        """See ``Readers``: nothing waits for it."""
        return None
