"""The metrics of what proxies ask one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric


def _none() -> tuple[int, int]:
    return 0, 0


class PeerNumbers:
    """Counters of ``proxy.peers``, which are read at any time."""

    __slots__ = (
        "_gathered",
        "_links",
        "answered",
        "asked",
        "held_for_others",
        "holds",
        "holds_refused",
        "prevented",
        "questions",
        "sought",
        "standstills",
        "unanswered",
    )

    def __init__(
        self, links: Callable[[], tuple[int, int]] = _none, gathered: Callable[[], tuple[int, int]] = _none
    ) -> None:
        """``links``: the other processes that are known, and those of them with a link.

        ``gathered``: buckets that were given up, and that were absorbed (``catalog.gathering``).
        """
        self._links = links
        self._gathered = gathered
        self.asked = 0
        self.questions = 0
        self.answered = 0
        self.prevented = 0
        self.sought = 0
        self.unanswered = 0
        self.standstills = 0
        self.holds = 0
        self.holds_refused = 0
        self.held_for_others = 0

    def collect(self) -> Iterator[Metric]:
        """The metrics with their current values."""
        known, linked = self._links()
        given_up, absorbed = self._gathered()
        yield GaugeMetricFamily("tsproxy_peers", "Other tsproxy processes that use the backend.", value=known)
        yield GaugeMetricFamily("tsproxy_peers_linked", "Those of them that can be asked.", value=linked)
        for name, text, value in (
            ("asks", "Messages to other tsproxy processes about retryable statements.", self.asked),
            ("questions", "Commands that these messages asked about.", self.questions),
            ("answers", "Commands that other processes asked about.", self.answered),
            ("doubles_prevented", "Commands that another process had executed already.", self.prevented),
            ("unanswered", "Commands about which another process gave no answer in time.", self.unanswered),
            ("looked_up", "Commands whose rows were looked up because a process could not be asked.", self.sought),
            ("standstills", "Times that this process stood still longer than others wait.", self.standstills),
            ("holds", "Times that other processes were asked to keep readers waiting for joins.", self.holds),
            ("holds_refused", "Those of them to which a process did not agree.", self.holds_refused),
            ("held_for_others", "Times that readers waited for joins of other processes.", self.held_for_others),
            ("buckets_given_up", "Buckets that other processes have added to theirs.", given_up),
            ("buckets_absorbed", "Buckets of other processes that were added to those of this one.", absorbed),
        ):
            yield CounterMetricFamily(f"tsproxy_peer_{name}", text, value=value)
