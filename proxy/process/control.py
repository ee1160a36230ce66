"""What the process and its server know of each other while clients are served."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from proxy.admin.handler import Action
from proxy.admin.workers import Workers
from proxy.clients.connection_board import ConnectionBoard
from proxy.observe.status_document import Serving
from proxy.process.reloading import Reloading


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """One of ``of`` workers, with its number from 0 on.

    ``on_serving`` is called when the backend was reached, with what the worker can be told to do: execute an admin
    command, and close the connections of monitoring clients. ``on_closed`` is called when it accepts no more clients.
    """

    number: int
    of: int
    board: ConnectionBoard
    workers: Workers
    on_serving: Callable[[Action, Callable[[], None]], None]
    on_closed: Callable[[], None]

    def connection_ids(self) -> Iterator[int]:
        """The ids of the connections of this worker, which no other has."""
        return count(self.number + 1, self.of)


@dataclass(slots=True)
class Control:
    """``why_not_ready`` is what ``/readyz`` says; ``why_turned_away`` is why an administrator lets no client in.

    ``lacks``: what does not work with this backend, in one sentence; ``""`` if everything does. ``access``: how its
    time-series collections are read and written, one sentence, too; these three are known once the backend was reached.
    ``on_serving`` is called then, with what the status page shows.
    """

    reloading: Reloading
    why_not_ready: Callable[[], str]
    why_turned_away: Callable[[], str] = lambda: ""
    lacks: str = ""
    on_serving: Callable[[Serving], None] = lambda serving: None
    access: Callable[[], str] = lambda: ""
    started_seconds: float = field(default_factory=time.monotonic)
    worker: WorkerPlace | None = None
    """What this process is among several workers; ``None`` if it serves alone."""

    def knows(self, lacks: str, access: Callable[[], str], why_turned_away: Callable[[], str]) -> None:
        """The backend was reached."""
        self.lacks, self.access, self.why_turned_away = lacks, access, why_turned_away

    def remark(self) -> str:
        """What ``/readyz`` says of the backend while the proxy is ready."""
        return "\n".join(filter(None, (self.lacks, self.access())))
