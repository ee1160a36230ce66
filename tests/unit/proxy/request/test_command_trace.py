from __future__ import annotations

import time

from proxy.request.command_trace import MOST_COMMITS, CommandTrace, CommitTrace, clock_offset_ns
from tests.support.spans import InMemory


async def test_links_to_commits_are_bounded() -> None:
    memory = InMemory()
    span = memory.tracing.command("insert", 1, {})
    trace = CommandTrace(span, 0)
    for _ in range(MOST_COMMITS + 5):
        trace.committed_by(CommitTrace(memory.tracing.commit("commit", 1, [span])))
    assert len(trace.commits) == MOST_COMMITS
    span.end("insert rows", 2, {})
    assert len((await memory.ended())["insert rows"].links) == MOST_COMMITS


def test_times_are_those_of_the_clock_on_the_wall() -> None:
    trace = CommandTrace(InMemory().tracing.command("find", 1, {}), clock_offset_ns())
    assert abs(trace.at_ns(time.perf_counter()) - time.time_ns()) < 1e10
