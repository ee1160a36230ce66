"""What the membership asks, the backend's view of other processes answers."""

from __future__ import annotations

import inspect

import pytest

from proxy.backend.current_op import CurrentOperations
from proxy.peers.peer_directory import PeerDirectory

NAMES = [name for name, _ in inspect.getmembers(PeerDirectory, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_the_backend_offers_it(name: str) -> None:
    asked, offered = (inspect.signature(getattr(each, name)) for each in (PeerDirectory, CurrentOperations))
    assert list(asked.parameters) == list(offered.parameters)[: len(asked.parameters)]


def test_all_of_it_is_asked_for() -> None:
    assert {"activity", "executes", "fence", "proxies"} <= set(NAMES)
