"""Decides which small inserts are coalesced into native ones although buckets can be written.

Buckets may not grow in parts while other proxies use the backend, while readers prevent joins, and where the account or
the backend cannot join. If the rows of many clients are scattered over many buckets then, native inserts of many
documents are cheaper than one update for each (``catalog.growth.scatter``).
"""

from __future__ import annotations

from collections.abc import Callable

from catalog.catalog import BucketCatalog
from catalog.namespaces import Namespace, VirtualCollection
from proxy.inserts.native_inserts import count_plain, has_empty_meta
from proxy.inserts.staging import Staging


class SmallInserts:
    """The decision for inserts of one document, and what stages those that are coalesced."""

    def __init__(self, catalog: BucketCatalog, staging: Staging, may_insert: Callable[[Namespace], bool]) -> None:
        """``may_insert``: whether the proxy's own account may insert into a collection itself."""
        self._catalog = catalog
        self.staging = staging
        self._may_insert = may_insert

    def takes(self, collection: VirtualCollection, document: bytes) -> bool:
        """Whether this insert is coalesced. Documents that a server would store otherwise, or refuse, are not."""
        growth = self._catalog.growth
        if not growth.may_be_scattered or not growth.is_scattered(self._catalog.collection(collection)):
            return False
        if not self._may_insert(collection.namespace):
            return False
        pieces = (document,)
        return count_plain(pieces, 0, collection) == 1 and not has_empty_meta(pieces, 0, collection)
