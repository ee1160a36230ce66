"""No parts are made while another process of the proxy is there (rights: ``tests/security/test_growth.py``)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from catalog.catalog import BucketCatalog, CatalogOptions
from catalog.errors import BackendUnavailable
from proxy.process import growth_policy as growth
from proxy.process.growth_policy import OtherProxies
from tests.support.catalog_parts import CountingIds, ManualClock


class Others:
    """What the backend says."""

    def __init__(self) -> None:
        self.answer: bool | Exception = False

    async def are_proxies(self) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def catalog() -> BucketCatalog:
    return BucketCatalog(CatalogOptions(), ManualClock(), CountingIds())


async def test_a_catalog_is_shared_while_another_proxy_is_there(
    catalog: BucketCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Others()
    company = OtherProxies(catalog, others)
    await company.look()
    assert not catalog.growth.is_beside_other_proxies
    others.answer = True
    await company.look()
    assert catalog.growth.is_beside_other_proxies
    others.answer = False
    await company.look()
    assert catalog.growth.is_beside_other_proxies, "it may only be starting again"
    monkeypatch.setattr(growth, "GONE_SECONDS", 0.0)
    others.answer = True
    await company.look()
    others.answer = False
    await company.look()
    assert not catalog.growth.is_beside_other_proxies


async def test_who_cannot_ask_is_not_alone(catalog: BucketCatalog) -> None:
    others = Others()
    others.answer = BackendUnavailable("gone")
    with capture_logs() as logs:
        await OtherProxies(catalog, others).look()
    assert catalog.growth.is_beside_other_proxies
    assert [line["event"] for line in logs if line["log_level"] == "info"] == [growth.UNKNOWN]
