"""A short run of the mutation fuzzer; ``make fuzz`` runs it for as long as you like."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.mutation import Fuzzer, mutate
from tests.fuzz.seeds import seeds
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started

SECONDS = 6


@pytest.fixture
def own_proxy(mongod: MongodProcess, tmp_path: Path) -> Iterator[ProxyProcess]:
    with started(ProxyProcess(tmp_path, mongod.uri)) as proxy:
        yield proxy


def test_damaged_messages_do_no_harm(own_proxy: ProxyProcess, scale: float) -> None:
    outcomes = Fuzzer(own_proxy, seed=random.randrange(1 << 32)).run(SECONDS * scale)
    assert outcomes.counts["answered"] > outcomes.sent / 10, str(outcomes)


def test_undamaged_messages_are_answered(own_proxy: ProxyProcess) -> None:
    """Else the fuzzer would only try what is refused at the door."""
    fuzzer = Fuzzer(own_proxy, seed=0)
    for raw in seeds():
        fuzzer._send(raw, right_checksums=1.0)
    fuzzer._check()
    fuzzer.hang_up()
    fuzzer._client.close()
    assert fuzzer.outcomes.counts["closed"] == 0, str(fuzzer.outcomes)
    assert fuzzer.outcomes.counts["answered"] >= len(seeds()) - 3, str(fuzzer.outcomes)


def test_damage_follows_the_seed() -> None:
    raw = seeds()[3]
    assert mutate(random.Random(7), raw) == mutate(random.Random(7), raw)
