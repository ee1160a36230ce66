"""Commits a prepared join in a moment without readers, who would meet its rows twice or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from catalog.namespaces import Namespace
from catalog.ports import PreparedJoin


class ReaderBarrier(Protocol):
    """Detects readers of buckets, and keeps new ones waiting."""

    def kept_out(self, namespace: Namespace) -> AbstractAsyncContextManager[bool]:
        """Keep new readers of the collection waiting, for a short time; true if no reader is active."""
        ...

    @property
    def still_kept_out(self) -> bool:
        """Whether they still wait; false once another process's hold may have expired. Also called from threads."""
        ...


async def committed_alone(
    prepared: PreparedJoin, readers: ReaderBarrier, namespace: Namespace, commit: Callable[[], Awaitable[None]]
) -> bool:
    """Whether there was a moment without readers, so that ``commit`` was called; otherwise the join is abandoned."""
    is_sent = False
    try:
        async with readers.kept_out(namespace) as alone:
            # This process may have been stopped since readers were told to wait.
            if alone and readers.still_kept_out:
                is_sent = True
                await commit()
    finally:
        if not is_sent:
            await prepared.abandon()
    return is_sent
