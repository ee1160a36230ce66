"""The capabilities of the backend that matter for rewriting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Facts about the backend, probed when the proxy connects to it.

    ``version`` is the server's ``versionArray`` (major, minor, patch).
    """

    version: tuple[int, int, int] = (6, 0, 5)
    is_replica_set: bool = False
    is_mongos: bool = False

    @property
    def has_native_timeseries(self) -> bool:
        """Whether ``$_internalUnpackBucket`` and native ``create`` exist (5.0, C8)."""
        return self.version >= (5, 0, 0)

    @property
    def has_collection_uuid(self) -> bool:
        """Whether commands support ``collectionUUID`` (6.0)."""
        return self.version >= (6, 0, 0)

    @property
    def deletes_from_closed_buckets(self) -> bool:
        """Whether deletes include buckets with ``control.closed``; servers from 7.0 skip them."""
        return self.version < (7, 0, 0)
