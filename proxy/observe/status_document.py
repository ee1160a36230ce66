"""The document of the status page, ``/status.json``: numbers, and names for those who may see them.

Its size and the work for it are bounded whatever clients do: lists have a most, texts are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec

from proxy.observe.busiest import BusiestCollections
from proxy.observe.history import MOST_POINTS, NOW_SECONDS, SAMPLE_SECONDS, History, Span, quantiles_ms
from proxy.observe.http_messages import HttpAnswer, HttpRequest
from proxy.observe.loopback import is_loopback, names_this_machine
from proxy.observe.metrics import Metrics
from proxy.observe.notes import Watched, notes_of
from proxy.observe.slow_groups import SlowGroup, grouped
from proxy.observe.slow_ring import SlowRing

SCHEMA: Final = 1
MOST_SLOW: Final = 12
"""Groups of slow commands."""
RECENT_SECONDS: Final = MOST_POINTS * SAMPLE_SECONDS
MOST_ERRORS: Final = 20
LONGEST_TEXT: Final = 300
"""Characters; longer texts are cut."""
LONGEST_REASON: Final = 1_000
"""The same for the reason why the proxy is not ready, which ``/readyz`` shows, too."""
MOST_TEXTS: Final = 8
"""Of a list of texts."""

StatusPageMode = Literal["off", "numbers", "auto", "names"]
"""The setting ``status_page``."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What there is to show when the backend was reached. The functions return at once.

    ``backend`` has no names; ``names`` has those of the backend. ``traffic``: serving, paused or draining, and the
    number of held commands. ``beside_others``: whether other proxies use the backend, ``None`` if that is unknown.
    ``lacks``: what does not work with this backend, in one sentence; ``""`` if everything does.
    """

    backend: Callable[[], Mapping[str, Any]]
    names: Callable[[], Mapping[str, Any]]
    traffic: Callable[[], tuple[str, int]]
    beside_others: Callable[[], bool | None]
    has_access_control: Callable[[], bool]
    slow: SlowRing
    busiest: BusiestCollections
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Process:
    """What does not change: the version, an id that no other process has, and the start in UTC (ISO 8601)."""

    version: str
    instance: str
    started_at: str


class StatusDocument:
    """Makes the document. ``serving`` is set when the backend was reached."""

    def __init__(
        self,
        process: Process,
        mode: StatusPageMode,
        metrics: Metrics,
        history: History,
        why_not_ready: Callable[[], str],
    ) -> None:
        self.serving: Serving | None = None
        self._process = process
        self._mode = mode
        self._metrics = metrics
        self._history = history
        self._why_not_ready = why_not_ready

    async def look(self) -> None:
        """What needs more than one turn of the event loop; called after each reading."""
        if self.serving is not None and self._mode != "numbers":
            await self.serving.busiest.look_when_due()

    def shows_names(self, request: HttpRequest) -> bool:
        """Whether this request may see names; see ``names_are_shown``."""
        serving = self.serving
        return serving is not None and names_are_shown(
            self._mode, request, has_access_control=serving.has_access_control()
        )

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """The answer to ``/status.json``; with ``?after=N`` only the points after this one."""
        body = msgspec.json.encode(self._document(request))
        return HttpAnswer(HTTPStatus.OK, body, "application/json")

    def _document(self, request: HttpRequest) -> dict[str, Any]:
        serving, history = self.serving, self._history
        latest, recent = history.latest, history.last(RECENT_SECONDS)
        state, held = ("starting", 0) if serving is None else serving.traffic()
        beside_others = None if serving is None else serving.beside_others()
        lacks = "" if serving is None else serving.lacks
        watched = Watched(latest, recent, self._metrics.limits, state, held, beside_others, lacks)
        reason = self._why_not_ready()
        shows_names = self.shows_names(request)
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "tsproxy": self._process.version,
            "instance": self._process.instance,
            "startedAt": self._process.started_at,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "ready": not reason,
            "whyNotReady": cut(reason, LONGEST_REASON),
            "state": state,
            "held": held,
            "notes": [{"severity": note.severity, "text": note.text} for note in notes_of(watched)],
            "shows": "names" if shows_names else "numbers",
            "backend": self._backend(serving, shows_names=shows_names),
            "otherProxies": beside_others,
            "limits": self._metrics.limits,
            "totals": latest.counts,
            "gauges": latest.gauges,
            "now": _shown(history.last(NOW_SECONDS)),
            "recent": _shown(recent),
            "errors": _errors(recent),
            "points": history.after(request.number("after")),
        }
        if serving is not None and shows_names:
            document["collections"] = _collections(serving.busiest)
            document["slow"] = self._slow(serving.slow)
        return document

    def _backend(self, serving: Serving | None, *, shows_names: bool) -> dict[str, Any]:
        shown: dict[str, Any] = {"answers": self._metrics.backend_up}
        if serving is not None:
            catalog = self._metrics.catalog
            shown["growsInParts"] = catalog is not None and catalog.grows_in_parts()
            shown |= serving.backend()
            if shows_names:
                shown |= {name: cut(str(value)) for name, value in serving.names().items()}
        return shown

    def _slow(self, ring: SlowRing) -> dict[str, Any]:
        seconds = self._metrics.slow.threshold_seconds
        threshold_ms = None if seconds is None else seconds() * 1000
        since = (datetime.now(UTC) - timedelta(seconds=RECENT_SECONDS)).isoformat(timespec="milliseconds")
        return {
            # JSON has no infinity, which is the threshold if no command is slow.
            "thresholdMs": None if threshold_ms == float("inf") else threshold_ms,
            "commands": [_group(each) for each in grouped(ring.latest(len(ring)), since, MOST_SLOW)],
        }


def names_are_shown(mode: StatusPageMode, request: HttpRequest, *, has_access_control: bool) -> bool:
    """Whether this request gets names of collections and what else is known of clients."""
    match mode:
        case "off" | "numbers":
            return False
        case "auto":
            # As for admin commands: without access control, who is on this machine may look. With it, the backend
            # decides, and it cannot be asked for somebody who has not logged in.
            return not has_access_control and is_loopback(request.peer) and names_this_machine(request.host)
        case "names":
            return True


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def _shown(span: Span) -> dict[str, Any]:
    return {
        "seconds": round(span.seconds, 3),
        "counts": span.counts,
        "rollovers": span.rollovers,
        "ways": {way: [sum(counts), *quantiles_ms(counts)] for way, counts in sorted(span.latencies.items())},
    }


def _errors(span: Span) -> list[dict[str, Any]]:
    most = sorted(span.errors.items(), key=lambda item: -item[1])[:MOST_ERRORS]
    return [{"command": command, "way": way, "class": kind, "count": count} for (command, way, kind), count in most]


def _collections(busiest: BusiestCollections) -> dict[str, Any]:
    return {
        "total": busiest.total,
        "examined": busiest.examined,
        "seconds": round(busiest.seconds, 3),
        "busiest": [each.as_document(busiest.seconds) for each in busiest.shown],
    }


def _group(group: SlowGroup) -> dict[str, Any]:
    slowest: dict[str, Any] = {}
    for name, value in group.slowest.as_document().items():
        if isinstance(value, str):
            slowest[name] = cut(value)
        elif isinstance(value, list):
            slowest[name] = [cut(str(each)) for each in value[:MOST_TEXTS]]
        elif isinstance(value, int | float):
            slowest[name] = value
    return {"count": group.count, "sumMs": round(group.sum_ms, 3), "latestAt": group.latest_at, "slowest": slowest}
