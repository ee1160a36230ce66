from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import bson
import pytest

from proxy.tools.bench.shapes import (
    BUILT_IN,
    CHECK_FIELD,
    FIRST_TIME,
    MOST_TEMPLATE_BYTES,
    Shape,
    WrongShape,
    mixed,
    of_template,
    shape_of,
)


def test_numbers_that_look_random_are_the_same_each_time() -> None:
    assert mixed(1) == 0x910A2DEC89025CC1
    assert len({mixed(number) for number in range(10_000)}) == 10_000


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_shapes(name: str) -> None:
    shape = shape_of(name)
    row = shape.rows()
    one, other, later = row(7, 0), row(8, 0), row(7, 5)
    assert shape.meta_field is not None
    assert one[shape.meta_field] == later[shape.meta_field] != other[shape.meta_field]
    assert one[shape.time_field] == FIRST_TIME
    assert later[shape.time_field] == FIRST_TIME + timedelta(seconds=5)
    numbers = [value for value in one.values() if isinstance(value, float)]
    assert len(set(numbers)) == len(numbers) >= 3
    assert row(7, 5) == later
    assert "$" not in json.dumps(one, default=str)
    assert 0 < len(bson.encode(one)) < 1_000
    assert shape.document_bytes == len(bson.encode(row(1, 1)))


def test_check_values_fit_into_32_bits_and_differ() -> None:
    row = shape_of("iot").rows()
    checks = [row(series, tick)[CHECK_FIELD] for series in range(50) for tick in range(50)]
    assert len(set(checks)) > 2_490
    assert all(0 <= each < 1 << 31 for each in checks)


def test_a_template_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(
        '{"when": "$time", "source": {"ids": [1, "$series"], "kind": "x"}, "n": {"$numberLong": "5"},'
        ' "values": ["$number", {"deep": "$number"}, "text"]}'
    )
    shape = shape_of(str(path))
    assert (shape.name, shape.time_field, shape.meta_field) == ("mine.json", "when", "source")
    assert shape.series_path == "source.ids"
    made = shape.rows()(3, 1)
    assert made["source"] == {"ids": [1, 3], "kind": "x"}
    assert made["n"] == 5
    assert isinstance(made["values"][0], float)
    assert isinstance(made["values"][1]["deep"], float)
    assert made["values"][2] == "text"


def test_without_a_series_there_is_no_meta_field() -> None:
    shape = of_template("x", {"t": "$time", "v": 1})
    assert (shape.meta_field, shape.series_path) == (None, None)
    assert of_template("x", {"t": "$time", "m": "$series"}).series_path == "m"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ({"v": 1}, "exactly one field"),
        ({"t": "$time", "u": "$time"}, "exactly one field"),
        ({"a": {"t": "$time"}}, "exactly one field"),
        ({"t": "$time", "a": ["$time"]}, "exactly one field"),
        ({"t": "$time", "a": "$series", "b": ["$series"]}, "one field at its top only"),
        ({"t": "$time", "_id": 1}, "'_id'"),
        ({"t": "$time", CHECK_FIELD: 1}, CHECK_FIELD),
        ({"a.b": "$time"}, "no collection can have"),
        ({"t": "$time", "$m": "$series"}, "no collection can have"),
    ],
)
def test_templates_that_cannot_be_used(template: dict[str, Any], reason: str) -> None:
    with pytest.raises(WrongShape, match=reason.replace("$", r"\$")):
        of_template("x", template)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"t": {"$oid": "x"}}', "5", "\xff"])
def test_files_that_are_no_template(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(WrongShape, match=r"mine\.json"):
        shape_of(str(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(WrongShape, match="neither a shape"):
        shape_of(str(tmp_path / "missing"))
    with pytest.raises(WrongShape, match="cannot read"):
        shape_of(str(tmp_path))
    (tmp_path / "large").write_bytes(b" " * (MOST_TEMPLATE_BYTES + 1))
    with pytest.raises(WrongShape, match="larger than"):
        shape_of(str(tmp_path / "large"))


def test_a_shape_is_told_by_its_parts() -> None:
    assert of_template("x", {"t": "$time"}) == Shape("x", {"t": "$time"}, "t", None, None)
