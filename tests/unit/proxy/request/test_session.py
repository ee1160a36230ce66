from __future__ import annotations

from typing import cast

from proxy.request.session import Session
from proxy.upstream.connection import Upstream, UpstreamConnection


class Line:
    """An upstream that is open, or not."""

    def __init__(self, *, is_open: bool) -> None:
        self.ready = cast("UpstreamConnection", object()) if is_open else None
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def session_of(line: Line) -> Session:
    return Session(1, "peer", cast("Upstream", line))


def test_connections_are_those_that_are_open_at_every_member() -> None:
    home, near, far = Line(is_open=True), Line(is_open=False), Line(is_open=True)
    session = session_of(home)
    session.members = {"near": session_of(near), "far": session_of(far)}
    assert session.connections() == [home.ready, far.ready]


def test_a_client_that_leaves_takes_its_connections_to_every_member_along() -> None:
    home, member = Line(is_open=True), Line(is_open=True)
    session = session_of(home)
    session.members = {"member": session_of(member)}
    session.close()
    assert (home.closed, member.closed) == (1, 1)


def test_who_waits_for_a_client_hears_once_that_it_left() -> None:
    session = session_of(Line(is_open=True))
    heard: list[bool] = []
    session.on_disconnect = lambda: heard.append(session.on_disconnect is None)
    session.close()
    session.close()
    assert heard == [True]
