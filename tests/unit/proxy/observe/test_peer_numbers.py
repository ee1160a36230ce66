"""The metrics of what proxies ask one another."""

from __future__ import annotations

from proxy.observe.peer_numbers import PeerNumbers


def test_each_number_has_its_metric() -> None:
    numbers = PeerNumbers(lambda: (3, 2), lambda: (11, 12))
    names = [
        *("asked", "questions", "answered", "prevented", "unanswered", "sought", "standstills"),
        *("holds", "holds_refused", "held_for_others"),
    ]
    for value, name in enumerate(names, start=1):
        setattr(numbers, name, value)
    samples = {sample.name: sample.value for metric in numbers.collect() for sample in metric.samples}
    assert samples == {
        "tsproxy_peers": 3,
        "tsproxy_peers_linked": 2,
        "tsproxy_peer_asks_total": 1,
        "tsproxy_peer_questions_total": 2,
        "tsproxy_peer_answers_total": 3,
        "tsproxy_peer_doubles_prevented_total": 4,
        "tsproxy_peer_unanswered_total": 5,
        "tsproxy_peer_looked_up_total": 6,
        "tsproxy_peer_standstills_total": 7,
        "tsproxy_peer_holds_total": 8,
        "tsproxy_peer_holds_refused_total": 9,
        "tsproxy_peer_held_for_others_total": 10,
        "tsproxy_peer_buckets_given_up_total": 11,
        "tsproxy_peer_buckets_absorbed_total": 12,
    }


def test_before_there_are_any_all_are_zero() -> None:
    assert {sample.value for metric in PeerNumbers().collect() for sample in metric.samples} == {0}
