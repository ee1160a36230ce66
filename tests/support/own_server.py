"""A server of the chosen version for one test or module, which may stop it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.mongod import MongodProcess
from tests.support.versions import server
from tests.support.wanted import MONGOD_VERSION

ALONE_OR_SET: list[str | None] = [None, "rs0"] if server(MONGOD_VERSION).runs_alone else ["rs0"]
"""The names of replica sets to test with; ``None`` for a standalone, where the version can be one."""


def kind_of(replica_set: str | None) -> str:
    """What a test with this set is called."""
    return replica_set or "standalone"


@contextmanager
def own_server(directory: Path, replica_set: str | None) -> Iterator[MongodProcess]:
    """A started mongod with its data in ``directory``, which are removed in the end."""
    chosen = server(MONGOD_VERSION)
    process = MongodProcess(directory, binary=chosen.binary, environment=chosen.environment, replica_set=replica_set)
    try:
        yield process.start()
    finally:
        process.remove()
