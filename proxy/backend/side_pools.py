"""Pools for requests that may be slow, or many: commits never wait for one of their connections."""

from __future__ import annotations

from typing import Final

from proxy.backend.fences import FENCES_AT_ONCE
from proxy.backend.service import ServicePool
from proxy.request.ports import STEPS_AT_ONCE
from proxy.request.step_places import StepPlaces

SEARCHES_AT_ONCE: Final = 4
"""Maximum number of concurrent searches for stored rows: each unpacks buckets, so more would slow down the backend."""
SEARCHES_OF_ONE: Final = 2
"""Maximum number of those in one database, so that clients of another one never wait for all of them."""

QUESTIONS_AT_ONCE: Final = 2
"""Maximum number of concurrent questions about operations of others."""


class SidePools:
    """The pools, and the places of searches."""

    def __init__(self, commits: ServicePool) -> None:
        """With the settings of the pool for ``commits``."""
        self.steps = commits.another(STEPS_AT_ONCE)
        """For steps of deletes and the like."""
        self.searches = commits.another(SEARCHES_AT_ONCE)
        self.questions = commits.another(QUESTIONS_AT_ONCE)
        self.fences = commits.another(FENCES_AT_ONCE)
        self.search_places = StepPlaces(SEARCHES_AT_ONCE, SEARCHES_OF_ONE)

    def close(self) -> None:
        """Close every idle connection."""
        for pool in (self.steps, self.searches, self.questions, self.fences):
            pool.close()
