"""Limits of the whole proxy hold although each worker knows only its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.settings.config import LoadedSettings, load_settings
from proxy.settings.table import Settings
from proxy.settings.transfer import document_of, loaded_from
from proxy.settings.worker_shares import DIVIDED, number_of_workers, share_of, usable_cores

LEAST = {"max_connections": 1, "max_receiving_bytes": 192_000_000, "max_pending_bytes": 16_777_216}


@given(st.integers(1, 64), st.integers(64, 100_000))
def test_shares_add_up_to_the_setting(workers: int, connections: int) -> None:
    settings = Settings(max_connections=connections, max_pending_measurements=connections * 7)
    shares = [share_of(settings, workers, number) for number in range(workers)]
    assert sum(share.max_connections for share in shares) == connections
    assert sum(share.max_pending_measurements for share in shares) == connections * 7
    assert max(share.max_connections for share in shares) - min(share.max_connections for share in shares) <= 1


def test_a_share_is_enough_to_work_with() -> None:
    share = share_of(Settings(max_connections=1), 64, 63)
    assert {name: getattr(share, name) for name, least in DIVIDED.items() if getattr(share, name) < least} == {
        "max_connections_per_address": 0,
        "timeseries_idle_bucket_expiry_memory_usage_threshold": 0,
    }


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 64])
def test_a_share_is_valid_itself(workers: int) -> None:
    """A worker checks what it gets, as it may be another version of the program."""
    for loaded in (load_settings({}, {}), load_settings({name: str(least) for name, least in LEAST.items()}, {})):
        for number in range(workers):
            share = LoadedSettings(share_of(loaded.settings, workers, number), loaded.origins, loaded.ignored)
            assert loaded_from(document_of(share)) == share


def test_limits_of_users_are_divided_but_not_how_long_they_wait() -> None:
    limits = '{"*": {"max_commands": 5, "max_waiting": 0}, "a@admin": {"max_connections": 1, "max_wait_ms": 900}}'
    settings = load_settings({"user_limits": limits, "database_limits": '{"b": {"max_commands": 4}}'}, {}).settings
    first, second = (share_of(settings, 2, number) for number in range(2))
    assert (first.user_limits["*"].max_commands, second.user_limits["*"].max_commands) == (3, 2)
    assert first.user_limits["*"].max_waiting == 0
    assert second.user_limits["a@admin"].max_connections == 1
    assert second.user_limits["a@admin"].max_wait_ms == 900
    assert second.database_limits["b"].max_commands == 2


def test_number_of_workers() -> None:
    assert number_of_workers(Settings(), lambda: 8) == 1
    assert number_of_workers(Settings(workers=3), lambda: 8) == 3
    assert number_of_workers(Settings(workers="auto"), lambda: 8) == 8
    assert number_of_workers(Settings(workers="auto"), lambda: 500) == 64
    assert usable_cores() >= 1
