"""The capabilities of the backend, and how its time-series collections are read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from bson.binary import UUID_SUBTYPE, Binary

from catalog.namespaces import VirtualCollection

UUID_BYTES: Final = 16


class Access(Enum):
    """How the time-series collections of the backend are read and written.

    Servers from 8.2 have a third way, ``rawData`` on the name of the collection itself, with which buckets would be
    reached without their own namespace. It gets a member here when a server with it can be tested
    (docs/architecture.md).
    """

    BUCKETS = "buckets"
    """As documents of the bucket collections: the proxy chooses, encodes and unpacks buckets."""
    NATIVE = "native"
    """By public commands on the collection itself: inserts are coalesced, everything else is relayed."""


class Why(Enum):
    """Why an ``Access`` was chosen; the value is the label of the metric."""

    CHOSEN = "chosen"
    """A setting names it."""
    ABLE = "able"
    """The account may read and write buckets, and the server is one of those for which that is proven."""
    VERSION = "version"
    SHARDED = "sharded"
    RIGHTS = "rights"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Profile:
    """Facts about the backend, probed when the proxy connects to it and when they may have changed.

    ``version`` is the server's ``versionArray`` (major, minor, patch). ``unpacks_buckets``: whether the server knows
    the stage that unpacks buckets; compatible servers may report a later version than they support. ``why`` and
    ``reason``, a text, are those of ``access``.
    """

    version: tuple[int, int, int] = (6, 0, 5)
    is_replica_set: bool = False
    is_mongos: bool = False
    unpacks_buckets: bool = True
    access: Access = Access.BUCKETS
    why: Why = Why.ABLE
    reason: str = ""
    had_buckets: bool = False
    """The access is native, and clients may have cursors that are open on buckets.

    It was another one before, or the process is so young that it may replace one with another access.
    """

    @property
    def is_standalone(self) -> bool:
        """Whether the backend is one server without replication."""
        return not self.is_replica_set and not self.is_mongos

    @property
    def uses_buckets(self) -> bool:
        """Whether the proxy itself reads and writes bucket documents."""
        return self.access is Access.BUCKETS

    @property
    def has_cursors_on_buckets(self) -> bool:
        """Whether clients may have opened cursors on buckets, through this process or another one."""
        return self.uses_buckets or self.had_buckets

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

    def uuid_of(self, target: VirtualCollection) -> Mapping[str, Any]:
        """The field with which a read of buckets names the collection that it was planned for; empty if it cannot."""
        if not self.has_collection_uuid or self.is_mongos or len(target.uuid) != UUID_BYTES:
            return {}
        return {"collectionUUID": Binary(target.uuid, UUID_SUBTYPE)}

    @property
    def deletes_from_closed_buckets(self) -> bool:
        """Whether deletes include buckets with ``control.closed``; servers from 7.0 skip them."""
        return self.version < (7, 0, 0)
