"""What settings become: the options of the components of one process."""

from __future__ import annotations

from catalog.background.compressing import CompressingOptions
from catalog.catalog import CatalogOptions
from catalog.commit.committer import CommitterOptions
from catalog.growth.growth import GrowthOptions
from catalog.kernel import Limits
from proxy.inserts.paced_replies import PacedReplies
from proxy.settings.table import Settings
from rewrite.profile import Profile


def committer_options(settings: Settings, replies: PacedReplies) -> CommitterOptions:
    """How batches are committed."""
    return CommitterOptions(
        linger_seconds=settings.commit_linger_ms / 1000,
        rounds_in_flight=settings.commit_rounds_in_flight,
        server_selection_timeout_seconds=settings.server_selection_timeout_ms / 1000,
        behind_replies=replies.queue,
    )


def catalog_options(settings: Settings, growth: GrowthOptions, cache_share_bytes: int = 0) -> CatalogOptions:
    """The catalog's limits, from settings named like mongod's parameters (W41-W51)."""
    return CatalogOptions(
        limits=Limits(
            max_count=settings.timeseries_bucket_max_count,
            max_size_bytes=settings.timeseries_bucket_max_size,
            min_count=settings.timeseries_bucket_min_count,
            min_size_bytes=settings.timeseries_bucket_min_size,
        ),
        cache_share_bytes=cache_share_bytes,
        memory_threshold_bytes=settings.timeseries_idle_bucket_expiry_memory_usage_threshold,
        reopening=settings.reopening,
        growth=growth,
    )


def compressing_options(settings: Settings) -> CompressingOptions:
    """When buckets are compressed."""
    return CompressingOptions(inactive_seconds=settings.compress_after_seconds)


def compresses(settings: Settings, profile: Profile) -> bool:
    """Whether to compress buckets: as configured, with servers that compress theirs too (W8, W9)."""
    return settings.compress_closed_buckets and profile.has_native_timeseries and profile.version >= (6, 0, 0)
