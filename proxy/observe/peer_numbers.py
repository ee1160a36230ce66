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

        ``gathered``: buckets that were given up, and that were absorbed (``catalog.background.gathering``).
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

    def stood_still(self) -> None:
        """This process was suspended."""
        self.standstills += 1

    def collect(self) -> Iterator[Metric]:
        """The metrics with their current values."""
        known, linked = self._links()
        given_up, absorbed = self._gathered()
        yield GaugeMetricFamily("tsproxy_peers", "Other tsproxy processes that use the backend.", value=known)
        yield GaugeMetricFamily("tsproxy_peers_linked", "Other tsproxy processes that can be asked.", value=linked)
        for name, text, value in (
            ("asks", "Messages to other tsproxy processes about retryable statements.", self.asked),
            ("questions", "Commands that this process asked other processes about.", self.questions),
            ("answers", "Commands that other processes asked about.", self.answered),
            ("doubles_prevented", "Commands that another process had executed already.", self.prevented),
            ("unanswered", "Commands about which another process gave no answer in time.", self.unanswered),
            ("looked_up", "Commands whose rows were looked up because a process could not be asked.", self.sought),
            ("standstills", "Times this process was suspended for longer than other processes wait.", self.standstills),
            ("holds", "Requests to other processes to keep readers waiting for joins.", self.holds),
            (
                "holds_refused",
                "Requests to keep readers waiting for joins that were not granted.",
                self.holds_refused,
            ),
            ("held_for_others", "Times readers waited for joins of other processes.", self.held_for_others),
            ("buckets_given_up", "Buckets given up by this process for others to absorb.", given_up),
            ("buckets_absorbed", "Buckets of other processes that this process absorbed.", absorbed),
        ):
            yield CounterMetricFamily(f"tsproxy_peer_{name}", text, value=value)
