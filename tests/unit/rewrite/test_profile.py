from __future__ import annotations

import pytest

from rewrite.profile import Profile


@pytest.mark.parametrize(
    ("version", "native", "uuid", "closed"),
    [
        ((4, 4, 29), False, False, True),
        ((5, 0, 0), True, False, True),
        ((6, 0, 5), True, True, True),
        ((7, 0, 0), True, True, False),
    ],
)
def test_c8_what_a_version_can_do(version: tuple[int, int, int], native: bool, uuid: bool, closed: bool) -> None:
    profile = Profile(version)
    assert profile.has_native_timeseries is native
    assert profile.has_collection_uuid is uuid
    assert profile.deletes_from_closed_buckets is closed
