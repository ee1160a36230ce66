"""Spans of group commits: one for each, in a trace of its own, linked in both directions with those of its inserts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from catalog.buckets.write_batch import BatchState
from catalog.commit.sending import Commit
from catalog.errors import code_name
from catalog.ports import Applied, BulkOutcome
from proxy.observe.spans import Tracer
from proxy.request.command_spans import CommandSpans, backend_of
from proxy.request.command_trace import CommitTrace, clock_offset_ns
from proxy.request.exchange import Exchange
from proxy.request.naming import printable

MOST_LINKS: Final = 128
"""Inserts that the span of a commit refers to; each further insert refers to the commit only."""


class CommitSpans:
    """Makes the spans of commits; implements ``CommitObserver``."""

    def __init__(
        self,
        tracer: Tracer,
        commands: CommandSpans,
        backend_address: Callable[[], str],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """``backend_address``: where commits are sent. ``on_error`` gets internal errors."""
        self._tracer = tracer
        self._commands = commands
        self._backend_address = backend_address
        self._on_error = on_error

    def began(self, commit: Commit) -> ObservedSpan | None:
        """See ``CommitObserver``. A commit is recorded if one of its inserts is."""
        try:
            return self._began(commit)
        except Exception as error:  # noqa: BLE001 - reported; the commit must go on
            self._on_error(error)
            return None

    def _began(self, commit: Commit) -> ObservedSpan | None:
        inserts = _inserts(commit)
        traces = [self._commands.trace_of(each) for each in inserts]
        recorded = [each for each in traces if each.span.is_recorded and not each.has_ended]
        if not recorded:
            return None
        offset_ns = clock_offset_ns()
        started_ns = time.perf_counter_ns() + offset_ns
        span = self._tracer.commit("commit", started_ns, [each.span for each in recorded[:MOST_LINKS]])
        trace = CommitTrace(span)
        for each in recorded:
            each.committed_by(trace)
        namespace = commit.collection.namespace
        attributes: dict[str, Any] = {
            **backend_of(self._backend_address()),
            "db.namespace": printable(namespace.database),
            "db.collection.name": printable(namespace.collection),
            "db.operation.name": "update" if commit.writes[0].batch.base else "insert",
            "tsproxy.commit.buckets": len(commit.writes),
            "tsproxy.commit.measurements": sum(len(write.batch.measurements) for write in commit.writes),
            "tsproxy.commit.inserts": len(inserts),
        }
        return ObservedSpan(commit, trace, offset_ns, attributes, self._end)

    def _end(self, observed: ObservedSpan, outcome: BulkOutcome | None) -> None:
        try:
            moved = sum(write.batch.state is not BatchState.FINISHED for write in observed.commit.writes)
            attributes = dict(observed.attributes)
            if moved:
                attributes["tsproxy.commit.buckets_not_written"] = moved
            namespace = attributes["db.collection.name"]
            ended_ns = time.perf_counter_ns() + observed.offset_ns
            observed.trace.span.end(f"commit {namespace}", ended_ns, attributes, _error(outcome))
        except Exception as error:  # noqa: BLE001 - reported; the commit must go on
            self._on_error(error)


class ObservedSpan:
    """One commit whose span is recorded; implements ``ObservedCommit``.

    ``offset_ns``: see ``clock_offset_ns``; one for both ends, because the time of the day may be set in between.
    """

    __slots__ = ("_end", "attributes", "commit", "offset_ns", "trace")

    def __init__(
        self,
        commit: Commit,
        trace: CommitTrace,
        offset_ns: int,
        attributes: dict[str, Any],
        end: Callable[[ObservedSpan, BulkOutcome | None], None],
    ) -> None:
        self.commit = commit
        self.trace = trace
        self.offset_ns = offset_ns
        self.attributes = attributes
        self._end = end

    def ended(self, outcome: BulkOutcome | None) -> None:
        if isinstance(outcome, Applied):
            acknowledgement = outcome.acknowledgement
            self.trace.sent_seconds = acknowledgement.sent_at_seconds
            self.trace.answered_seconds = acknowledgement.answered_at_seconds
        self._end(self, outcome)


def _inserts(commit: Commit) -> list[Exchange]:
    """The commands that wait for the commit, each once."""
    found: dict[int, Exchange] = {}
    for write in commit.writes:
        for writer, _ in write.batch.shares:
            for origin in writer.origins():
                if isinstance(origin, Exchange):
                    found[id(origin)] = origin
    return list(found.values())


def _error(outcome: BulkOutcome | None) -> str:
    if outcome is None:
        return "abandoned"
    if isinstance(outcome, Applied):
        return ""
    return code_name(outcome.error.code)
