"""Tells other processes which collections this one has changed, so that they look them up before their next use.

Without this, a process notices what others have changed when it lists the collections again
(``proxy.backend.namespace_registry``). A client gets the reply to its command when the others have answered that they
know, or after ``PATIENCE_SECONDS``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from catalog.namespaces import Namespace
from proxy.peers.change import Change
from proxy.peers.link import LinkLost
from proxy.peers.peer import Peer
from proxy.peers.silences import Silences

PATIENCE_SECONDS: Final = 0.5
"""How long the reply to a command waits for the answers of other processes."""
MOST_UNANSWERED: Final = 1_000
"""Above it, processes are told, but their answers are not waited for."""


class Changes:
    """The side that tells."""

    def __init__(self, peers: Callable[[], Iterable[Peer]], now_seconds: Callable[[], float]) -> None:
        self._peers = peers
        self._unanswered: dict[asyncio.Future[None], str] = {}
        self._silences = Silences(now_seconds)

    def tell(self, namespace: Namespace, *, is_extended_range: bool = False) -> None:
        """Tell all of them, without waiting (``Change``)."""
        change = Change(namespace, is_extended_range)
        for peer in self._peers():
            link = peer.link
            if link is None or not link.is_open:
                continue
            is_waited_for = peer.name not in self._silences and len(self._unanswered) < MOST_UNANSWERED
            try:
                answer = link.changed(change, wants_answer=is_waited_for)
            except ValueError:
                # No server has a collection of this name.
                return
            if answer is not None:
                self._unanswered[answer] = peer.name
                answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[None]) -> None:
        del self._unanswered[answer]
        if not answer.cancelled() and not isinstance(answer.exception(), LinkLost | None):
            answer.result()

    async def told(self) -> None:
        """Wait until all know what they were told so far, or ``PATIENCE_SECONDS``."""
        if not self._unanswered:
            return
        _, late = await asyncio.wait(list(self._unanswered), timeout=PATIENCE_SECONDS)
        for answer in late:
            if (name := self._unanswered.get(answer)) is not None:
                self._silences.add(name)
                answer.cancel()
