"""The first question to the backend, against real servers."""

from __future__ import annotations

import pytest

from catalog.errors import BackendUnavailable
from proxy.backend.first_answer import first_answer, may_pass
from tests.support.mongod import MongodProcess
from tests.support.ports import free_port


async def test_a_server_answers(mongod: MongodProcess) -> None:
    await first_answer(mongod.uri, 20)


async def test_nobody_there_may_pass() -> None:
    with pytest.raises(BackendUnavailable) as caught:
        await first_answer(f"mongodb://127.0.0.1:{free_port()}/", 0.2)
    assert may_pass(caught.value)


async def test_refused_login_does_not_pass(mongod: MongodProcess) -> None:
    with pytest.raises(Exception, match="Authentication failed") as caught:
        await first_answer(f"mongodb://nobody:wrong@{mongod.address}/?directConnection=true", 20)
    assert not may_pass(caught.value)
