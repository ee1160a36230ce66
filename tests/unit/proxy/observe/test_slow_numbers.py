from __future__ import annotations

import math

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from proxy.observe.metrics import Metrics


def test_slow_commands_are_shown_by_command_comment_and_application() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    slow = metrics.slow
    slow.threshold_seconds = lambda: 0.1
    slow.count("find", "relay")
    slow.count("find", "relay")
    slow.count("insert", "ingest")
    slow.comments.count('nightly "report"')
    slow.applications.count("mongosh")
    slow.not_logged += 1
    metrics.show_names(True)
    shown = generate_latest(registry).decode().splitlines()
    for line in (
        'tsproxy_slow_commands_total{command="find",way="relay"} 2.0',
        'tsproxy_slow_commands_total{command="insert",way="ingest"} 1.0',
        'tsproxy_slow_commands_by_comment_total{comment="nightly \\"report\\""} 1.0',
        'tsproxy_slow_commands_by_application_total{application="mongosh"} 1.0',
        "tsproxy_slow_commands_not_logged_total 1.0",
        "tsproxy_slow_threshold_seconds 0.1",
    ):
        assert line in shown


def test_texts_of_clients_are_shown_only_with_names() -> None:
    registry = CollectorRegistry()
    slow = Metrics(registry).slow
    for text in ("customer 4711", "nightly"):
        slow.comments.count(text)
    shown = generate_latest(registry).decode()
    assert "4711" not in shown
    assert 'tsproxy_slow_commands_by_comment_total{comment="other"} 2.0' in shown
    assert "application=" not in shown


def test_no_threshold_is_infinite() -> None:
    registry = CollectorRegistry()
    Metrics(registry).slow.threshold_seconds = lambda: math.inf
    assert "tsproxy_slow_threshold_seconds +Inf" in generate_latest(registry).decode()
