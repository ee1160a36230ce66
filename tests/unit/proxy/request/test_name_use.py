"""What a name stands for, by the entries of ``listCollections``."""

from __future__ import annotations

import pytest

from catalog.namespaces import Namespace
from proxy.request.name_use import NameUse, name_use, names_of

CPU = Namespace("db", "cpu")
BUCKETS = ("system.buckets.cpu", "collection")


@pytest.mark.parametrize(
    ("entries", "use"),
    [
        ([], NameUse.FREE),
        ([("cpu", "timeseries"), BUCKETS], NameUse.TIMESERIES),
        ([("cpu", "timeseries")], NameUse.TIMESERIES),
        ([("cpu", "collection")], NameUse.OTHER),
        ([("cpu", "view")], NameUse.OTHER),
        ([BUCKETS], NameUse.BUCKETS_ALONE),
        ([BUCKETS, ("cpu", "collection")], NameUse.SPLIT),
        ([("cpu", "view"), ("cpu", "timeseries"), BUCKETS], NameUse.SPLIT),
    ],
)
def test_name_use(entries: list[tuple[str, str]], use: NameUse) -> None:
    assert name_use(CPU, [{"name": name, "type": kind} for name, kind in entries]) is use


def test_names() -> None:
    assert names_of(CPU) == ["cpu", "system.buckets.cpu"]
