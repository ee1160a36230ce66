"""What receives a streamed reply."""

from __future__ import annotations

from proxy.request.exchange import Exchange
from proxy.upstream.sink import Sink


def test_a_command_receives_its_own_reply() -> None:
    wanted = {name for name in vars(Sink) if not name.startswith("_")}
    assert wanted == {"whole", "write", "done", "deposed", "failed"}
    assert wanted <= set(dir(Exchange))
