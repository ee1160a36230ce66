"""Lets a real server fail commands (``failCommand``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.mongod import MongodProcess


@contextmanager
def failing(server: MongodProcess, times: int | None = None, **data: Any) -> Iterator[None]:
    """The server fails commands as ``data`` says, so many times or until the end."""
    mode: Any = "alwaysOn" if times is None else {"times": times}
    server.shared_client.admin.command("configureFailPoint", "failCommand", mode=mode, data=data)
    try:
        yield
    finally:
        server.shared_client.admin.command("configureFailPoint", "failCommand", mode="off")
