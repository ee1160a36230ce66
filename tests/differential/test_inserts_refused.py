"""The replies to inserts of which nothing is stored, to the field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.twins import Twins, run

TIMES = {"$clusterTime", "operationTime"}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("documents", [[{"v": 1}], [{"v": 1}, {"v": 2}]], ids=len)
def test_w90_inserts_of_which_nothing_is_valid_have_the_cluster_times(
    twins: Twins, set_twins: Twins, documents: list[dict[str, int]], ordered: bool
) -> None:
    for pair, has_times in ((twins, False), (set_twins, True)):
        pair.both({"create": "x", "timeseries": {"timeField": "t"}})
        native, virtual = (
            run(side, {"insert": "x", "documents": documents, "ordered": ordered})
            for side in (pair.native, pair.virtual)
        )
        assert list(virtual) == list(native)
        assert [each["code"] for each in virtual["writeErrors"]] == [each["code"] for each in native["writeErrors"]]
        assert virtual.keys() >= TIMES or not has_times
        if has_times:
            check_times(native, virtual)


def check_times(native: dict[str, Any], virtual: dict[str, Any]) -> None:
    """The proxy's are those that it has heard of last."""
    assert abs(virtual["operationTime"].time - native["operationTime"].time) < 30
    assert virtual["operationTime"] <= virtual["$clusterTime"]["clusterTime"]
