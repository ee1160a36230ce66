from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from proxy.observe.metrics import Metrics


def test_counts_are_shown_by_kind_and_name() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    user = metrics.limited.of("user", "ann@admin")
    assert metrics.limited.of("user", "ann@admin") is user
    user.connections, user.commands, user.waiting_commands = 2, 3, 4
    user.refused["connections"] += 5
    metrics.limited.of("database", "*").waiting_inserts = 6
    metrics.show_names(True)
    shown = generate_latest(registry).decode().splitlines()
    for line in (
        'tsproxy_limited_connections{kind="user",name="ann@admin"} 2.0',
        'tsproxy_limited_commands{kind="user",name="ann@admin"} 3.0',
        'tsproxy_limited_commands_waiting{kind="user",name="ann@admin"} 4.0',
        'tsproxy_limited_inserts_waiting{kind="database",name="*"} 6.0',
        'tsproxy_limit_refusals_total{kind="user",limit="connections",name="ann@admin"} 5.0',
        'tsproxy_limit_refusals_total{kind="database",limit="measurements",name="*"} 0.0',
    ):
        assert line in shown
    assert not any('kind="database"' in line and "connections" in line for line in shown)


def test_without_names_the_sums_are_shown() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for name in ("ann@admin", "bob@admin", "*"):
        counts = metrics.limited.of("user", name)
        counts.connections, counts.commands, counts.waiting_commands, counts.waiting_inserts = 1, 2, 3, 4
        counts.refused["connections"] += 5
    shown = generate_latest(registry).decode()
    assert "admin" not in shown
    for line in (
        'tsproxy_limited_connections{kind="user",name="*"} 3.0',
        'tsproxy_limited_commands{kind="user",name="*"} 6.0',
        'tsproxy_limited_commands_waiting{kind="user",name="*"} 9.0',
        'tsproxy_limited_inserts_waiting{kind="user",name="*"} 12.0',
        'tsproxy_limit_refusals_total{kind="user",limit="connections",name="*"} 15.0',
    ):
        assert line in shown.splitlines()
