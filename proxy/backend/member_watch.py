"""Follows the members of the backend by the replies that the driver's monitoring gets."""

from __future__ import annotations

from collections.abc import Callable

from pymongo.monitoring import (
    ServerHeartbeatFailedEvent,
    ServerHeartbeatListener,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
)
from pymongo.server_type import SERVER_TYPE

from proxy.upstream.dialing import upstream_name
from proxy.upstream.server_process import process_of


class MemberWatch(ServerHeartbeatListener):
    """Reports changes of the primary as soon as the driver's monitoring detects them."""

    def __init__(self) -> None:
        self._changed: Callable[[str, bool], None] = lambda address, is_primary: None
        self._primaries: set[str] = set()
        self._gone: Callable[[bytes], None] = lambda process: None
        self._processes: dict[str, bytes] = {}

    def follow(self, changed: Callable[[str, bool], None]) -> None:
        """Call this with a member's address when it becomes primary, steps down, or as primary no longer responds."""
        self._changed = changed

    def follow_processes(self, gone: Callable[[bytes], None]) -> None:
        """Call this with a server process when there is another one at its address.

        A member that does not respond may only be unreachable, so its process does not count as gone.
        """
        self._gone = gone

    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        """Called by the driver."""

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        """Called by the driver."""
        address = upstream_name(*event.connection_id)
        self._record(address, is_primary=event.reply.server_type == SERVER_TYPE.RSPrimary)
        self._record_process(address, process_of(event.reply.document))

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        """Called by the driver."""
        self._record(upstream_name(*event.connection_id), is_primary=False)

    def _record(self, address: str, *, is_primary: bool) -> None:
        if (address in self._primaries) != is_primary:
            self._primaries.symmetric_difference_update({address})
            self._changed(address, is_primary)

    def _record_process(self, address: str, process: bytes) -> None:
        before = self._processes.get(address, b"")
        self._processes[address] = process or before
        if before and process and before != process:
            self._gone(before)
