"""The capabilities of the backend that matter for rewriting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Facts about the backend, probed when the proxy connects to it.

    ``version`` is the server's ``versionArray`` (major, minor, patch). ``unpacks_buckets``: whether the server knows
    the stage that unpacks buckets; compatible servers may report a later version than they support.
    """

    version: tuple[int, int, int] = (6, 0, 5)
    is_replica_set: bool = False
    is_mongos: bool = False
    unpacks_buckets: bool = True

    @property
    def has_native_timeseries(self) -> bool:
        """Whether ``$_internalUnpackBucket`` and native ``create`` exist (5.0, C8).

        If not, everything is relayed, and creating a time-series collection is refused.
        """
        return self.version >= (5, 0, 0) and self.unpacks_buckets

    @property
    def shown_version(self) -> str:
        """The version as text."""
        return ".".join(map(str, self.version))

    @property
    def has_collection_uuid(self) -> bool:
        """Whether commands support ``collectionUUID`` (6.0)."""
        return self.version >= (6, 0, 0)

    @property
    def deletes_from_closed_buckets(self) -> bool:
        """Whether deletes include buckets with ``control.closed``; servers from 7.0 skip them."""
        return self.version < (7, 0, 0)
