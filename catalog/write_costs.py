"""What inserts through the catalog cost beside the time that they take, for the choice of the way of large inserts."""

from __future__ import annotations

from catalog.catalog import BucketCatalog
from catalog.namespaces import Namespace


class WriteCosts:
    """The costs so far, by collection; zero for one that was not used."""

    def __init__(self, catalog: BucketCatalog) -> None:
        self._catalog = catalog

    def late_measurements(self, namespace: Namespace) -> int:
        """How often a series has gone back in time, or returned to a bucket."""
        buckets = self._catalog.known(namespace)
        if buckets is None:
            return 0
        counters = buckets.counters
        returned = counters.numBucketsReopened - self._catalog.growth.others_found(buckets)
        return counters.numBucketsClosedDueToTimeBackward + returned

    def join_seconds(self, namespace: Namespace) -> float:
        """What the joins of all parts cost the server, whether due or done."""
        buckets = self._catalog.known(namespace)
        return 0.0 if buckets is None else self._catalog.growth.join_seconds(buckets)

    @property
    def has_unjoined(self) -> bool:
        """Whether parts of any collection wait to be joined."""
        return self._catalog.growth.unjoined > 0
