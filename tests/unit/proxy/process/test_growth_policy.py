"""No parts are made while another process of the proxy is there (rights: ``tests/security/test_growth.py``)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from catalog.catalog import BucketCatalog, CatalogOptions
from catalog.errors import BackendUnavailable
from proxy.backend.current_op import Proxy
from proxy.process import growth_policy as growth
from proxy.process.growth_policy import OtherProxies
from proxy.process.readers_elsewhere import ReadersElsewhere
from proxy.settings.config import load_settings
from rewrite.profile import Profile
from tests.support.catalog_parts import CountingIds, ManualClock


class Others:
    """What the backend says."""

    def __init__(self) -> None:
        self.answer: tuple[str, ...] | Exception = ()
        self.keep_readers: set[str] = set()

    async def proxies(self) -> list[Proxy]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [Proxy(name, "", "", 1) for name in self.answer]


@pytest.fixture
def catalog() -> BucketCatalog:
    return BucketCatalog(CatalogOptions(), ManualClock(), CountingIds())


async def test_a_catalog_is_shared_while_another_proxy_is_there(
    catalog: BucketCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, obstacles = Others(), catalog.growth.obstacles
    company = OtherProxies(catalog, others, lambda: others.keep_readers)
    await company.look()
    assert not obstacles.is_beside_other_proxies
    others.answer = ("tsproxy a",)
    await company.look()
    assert obstacles.is_beside_other_proxies
    assert obstacles.others_read
    others.answer = ()
    await company.look()
    assert obstacles.is_beside_other_proxies, "it may only be starting again"
    assert obstacles.others_read
    monkeypatch.setattr(growth, "GONE_SECONDS", 0.0)
    others.answer = ("tsproxy a",)
    await company.look()
    others.answer = ()
    await company.look()
    assert not obstacles.is_beside_other_proxies


async def test_proxies_that_keep_their_readers_waiting_are_no_obstacle(catalog: BucketCatalog) -> None:
    others, obstacles = Others(), catalog.growth.obstacles
    company = OtherProxies(catalog, others, lambda: others.keep_readers)
    others.answer, others.keep_readers = ("tsproxy a", "tsproxy b"), {"tsproxy a"}
    with capture_logs() as logs:
        await company.look()
        assert obstacles.others_read
        others.keep_readers = {"tsproxy a", "tsproxy b", "tsproxy c"}
        await company.look()
    assert not obstacles.others_read
    assert obstacles.is_beside_other_proxies, "they may delete rows"
    assert [line["event"] for line in logs] == [growth.BESIDE_ANOTHER, growth.NOT_BESIDE]


async def test_more_proxies_than_can_be_listed_are_an_obstacle(catalog: BucketCatalog) -> None:
    others = Others()
    others.answer = tuple(f"tsproxy {number}" for number in range(growth.MOST_PROXIES))
    others.keep_readers = set(others.answer)
    await OtherProxies(catalog, others, lambda: others.keep_readers).look()
    assert catalog.growth.obstacles.others_read


async def test_who_cannot_ask_is_not_alone(catalog: BucketCatalog) -> None:
    others = Others()
    others.answer = BackendUnavailable("gone")
    with capture_logs() as logs:
        await OtherProxies(catalog, others, lambda: others.keep_readers).look()
    assert catalog.growth.obstacles.is_beside_other_proxies
    assert [line["event"] for line in logs if line["log_level"] == "info"] == [growth.UNKNOWN]


class Account:
    """What the backend can do, and what the account may."""

    def __init__(self, profile: Profile, *rights: str) -> None:
        self.profile = profile
        self._rights = rights

    async def may_on_cluster(self, action: str) -> bool:
        return action in self._rights


SET, ALONE, ALONE_7 = Profile(is_replica_set=True), Profile(), Profile((7, 0, 0))


@pytest.mark.parametrize(
    ("wanted", "profile", "rights", "in_parts"),
    [
        ("in_place", SET, ("inprog", "applyOps"), False),
        ("in_parts", SET, (), True),
        ("auto", SET, (), False),
        ("auto", SET, ("inprog",), True),
        ("in_parts", ALONE, (), False),
        ("in_parts", ALONE, ("applyOps",), True),
        ("auto", ALONE, ("applyOps",), False),
        ("auto", ALONE, ("applyOps", "inprog"), True),
        ("in_parts", ALONE_7, ("applyOps", "inprog"), False),
    ],
)
async def test_how_buckets_grow_is_what_backend_and_account_allow(
    wanted: str, profile: Profile, rights: tuple[str, ...], in_parts: bool
) -> None:
    settings = load_settings({"write_strategy": wanted}, {}).settings
    options = await growth.growth_of(settings, Account(profile, *rights))  # type: ignore[arg-type]
    assert options.in_parts is in_parts
    assert options.busy == (growth.BUSY if in_parts and wanted == "auto" else 0.0)


def test_who_counts_as_alone(catalog: BucketCatalog) -> None:
    auto, in_parts = (load_settings({"write_strategy": each}, {}).settings for each in ("auto", "in_parts"))
    elsewhere = ReadersElsewhere(None, proxies_count=lambda: True)
    assert growth.is_alone(auto, catalog, elsewhere)
    assert not growth.is_alone(in_parts, catalog, elsewhere), "nobody looks for others"
    catalog.growth.obstacles.beside_other_proxies(are_there=True, keep_readers=True)
    assert not growth.is_alone(auto, catalog, elsewhere)
    catalog.growth.obstacles.beside_other_proxies(are_there=False)
    elsewhere.names = lambda: {"tsproxy a"}  # type: ignore[method-assign]
    assert not growth.is_alone(auto, catalog, elsewhere), "it is linked, and was not looked for yet"


async def test_the_reason_is_told_without_a_log() -> None:
    with capture_logs() as logs:
        assert await growth.why_in_place(Account(ALONE), asks=True) == growth.MAY_NOT_JOIN
        assert await growth.why_in_place(Account(SET), asks=True) == growth.MAY_NOT_ASK
        assert await growth.why_in_place(Account(SET), asks=False) is None
        assert await growth.why_in_place(Account(ALONE_7), asks=False) == growth.CANNOT_JOIN
    assert logs == []


@pytest.mark.parametrize("strategy", ["auto", "in_parts"])
async def test_nothing_is_said_of_growth_where_there_are_no_buckets(strategy: str) -> None:
    settings = load_settings({"write_strategy": strategy}, {}).settings
    with capture_logs() as logs:
        options = await growth.growth_of(settings, Account(Profile((4, 4, 2))))
    assert (options.in_parts, logs) == (False, [])
