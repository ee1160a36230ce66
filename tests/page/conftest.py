"""A browser, and a proxy under real load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import pymongo
import pytest
from playwright.sync_api import Browser

from tests.page.browser import HOSTILE, chromium
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.steady_load import SteadyLoad


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def loaded(mongod: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy with writers and readers, a collection whose name is HTML, slow commands and errors."""
    proxy = ProxyProcess(tmp_path_factory.mktemp("loaded"), mongod.uri, flags=["--slow-command-ms", "20"])
    mongod.shared_client.drop_database("page")
    try:
        proxy.start()
        with proxy.client() as client:
            client.page.create_collection(HOSTILE, timeseries={"timeField": "t"})
            client.page[HOSTILE].insert_many([{"t": datetime.now(UTC), "v": number} for number in range(5_000)])
            for _ in range(3):
                with suppress(pymongo.errors.OperationFailure):
                    client.page[HOSTILE].aggregate([{"$nothing": 1}])
        with SteadyLoad(proxy.client, "page", writers=3, readers=1):
            yield proxy
    finally:
        proxy.stop()
