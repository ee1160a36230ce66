"""What settings become."""

from __future__ import annotations

import pytest

from catalog.growth.growth import GrowthOptions
from proxy.inserts.paced_replies import PacedReplies
from proxy.process.component_options import catalog_options, committer_options, compresses, compressing_options
from proxy.settings.config import Settings, load_settings
from rewrite.profile import Profile


def settings(**flags: str) -> Settings:
    return load_settings(flags, {}).settings


def test_w41_to_w51_limits_are_those_of_the_settings() -> None:
    chosen = settings(
        timeseries_bucket_max_count="7",
        timeseries_bucket_min_count="3",
        timeseries_bucket_min_size="99",
        reopening="false",
    )
    options = catalog_options(chosen, GrowthOptions(), 12)
    assert (options.limits.max_count, options.limits.min_count, options.reopening) == (7, 3, False)
    assert (options.limits.min_size_bytes, options.cache_share_bytes) == (99, 12)
    assert options.limits.max_size_bytes == chosen.timeseries_bucket_max_size


def test_milliseconds_of_settings_are_seconds_inside() -> None:
    replies = PacedReplies(pytest.fail)
    options = committer_options(settings(commit_linger_ms="20", server_selection_timeout_ms="1500"), replies)
    assert (options.linger_seconds, options.server_selection_timeout_seconds) == (0.02, 1.5)
    assert compressing_options(settings(compress_after_seconds="5")).inactive_seconds == 5.0


@pytest.mark.parametrize(
    ("version", "wanted", "compressed"),
    [((6, 0, 5), "true", True), ((5, 0, 4), "true", False), ((6, 0, 5), "false", False)],
)
def test_w8_w9_buckets_are_compressed_where_servers_do_so(
    version: tuple[int, int, int], wanted: str, compressed: bool
) -> None:
    assert compresses(settings(compress_closed_buckets=wanted), Profile(version)) is compressed
