"""The documents that ``tsproxy bench`` inserts: built-in shapes, and templates of users.

A template is one document in extended JSON. The strings ``$time``, ``$series`` and ``$number`` in it stand for the time
of the row, the number of its series, and a value that differs from row to row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import bson
from bson import json_util

CHECK_FIELD: Final = "bench_check"
"""A number that each row has in addition; the sum of all is compared at the end."""
FIRST_TIME: Final = datetime(2024, 1, 1, tzinfo=UTC)
TICK: Final = timedelta(seconds=1)
"""Time between two rows of a series."""
MOST_TEMPLATE_BYTES: Final = 1024 * 1024

_TIME, _SERIES, _NUMBER = "$time", "$series", "$number"
_MASK: Final = (1 << 64) - 1

BUILT_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    "iot": {
        "t": _TIME,
        "device": {"id": _SERIES, "site": "hall-3", "model": "tx-400"},
        "celsius": _NUMBER,
        "humidity": _NUMBER,
        "volts": _NUMBER,
        "state": "on",
    },
    "metrics": {
        "at": _TIME,
        "tags": {"host": _SERIES, "region": "eu-1", "service": "api", "zone": "b"},
        **dict.fromkeys(("cpu_user", "cpu_system", "memory", "disk_read", "disk_write", "load_1", "load_5"), _NUMBER),
        **dict.fromkeys(("net_in", "net_out", "p50", "p95", "p99", "requests", "errors"), _NUMBER),
    },
}
"""Shapes by name: a sensor with a few values, and a host with many."""


class WrongShape(ValueError):
    """The template cannot be used; the message says why."""


def mixed(number: int) -> int:
    """A number of 64 bits that looks random, the same for the same ``number``: the finaliser of splitmix64."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of documents. ``meta_field`` and ``series_path`` are ``None`` if no field names the series."""

    name: str
    template: Mapping[str, Any]
    time_field: str
    meta_field: str | None
    series_path: str | None

    def rows(self) -> Callable[[int, int], dict[str, Any]]:
        """A function that makes the row of a series at a tick."""
        made = _maker(self.template)
        assert made is not None

        def row(series: int, tick: int) -> dict[str, Any]:
            key = mixed((series << 32) ^ tick)
            document: dict[str, Any] = made(FIRST_TIME + tick * TICK, series, key)
            document[CHECK_FIELD] = key & 0x7FFFFFFF
            return document

        return row

    @property
    def document_bytes(self) -> int:
        """The size of one row, without an ``_id``."""
        return len(bson.encode(self.rows()(1, 1)))


def shape_of(text: str) -> Shape:
    """A built-in shape by its name, or the template in a file; raises ``WrongShape``."""
    if text in BUILT_IN:
        return of_template(text, BUILT_IN[text])
    path = Path(text)
    try:
        if path.stat().st_size > MOST_TEMPLATE_BYTES:
            raise WrongShape(f"{path} is larger than {MOST_TEMPLATE_BYTES} bytes")
        template = json_util.loads(path.read_text(), json_options=json_util.DEFAULT_JSON_OPTIONS)
    except FileNotFoundError:
        names = ", ".join(BUILT_IN)
        raise WrongShape(f"{text!r} is neither a shape ({names}) nor a file") from None
    except OSError as error:
        raise WrongShape(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, bson.errors.BSONError) as error:
        if isinstance(error, WrongShape):
            raise
        raise WrongShape(f"{path} is not extended JSON: {error}") from None
    if not isinstance(template, Mapping):
        raise WrongShape(f"{path} must have one document")
    return of_template(path.name, template)


def of_template(name: str, template: Mapping[str, Any]) -> Shape:
    """The shape of a template; raises ``WrongShape``."""
    times = [field for field, value in template.items() if value == _TIME]
    metas = [field for field, value in template.items() if _contains(value, _SERIES)]
    if len(times) != 1 or json.dumps(template, default=str).count(f'"{_TIME}"') != 1:
        raise WrongShape(f"the template {name} must have exactly one field at its top with the value {_TIME!r}")
    if len(metas) > 1:
        raise WrongShape(f"the template {name} must have {_SERIES!r} in one field at its top only")
    for field in ("_id", CHECK_FIELD):
        if field in template:
            raise WrongShape(f"the template {name} must not have {field!r}, which the bench adds itself")
    if any("." in field or not field or field.startswith("$") for field in (*times, *metas)):
        raise WrongShape(f"the template {name} has a time or meta field that no collection can have")
    meta = metas[0] if metas else None
    return Shape(name, dict(template), times[0], meta, None if meta is None else _path(meta, template[meta]))


def _path(name: str, value: object) -> str:
    """The path of ``$series`` below the field ``name``, as far as there are no arrays."""
    if isinstance(value, Mapping):
        for inner, each in value.items():
            if _contains(each, _SERIES):
                return f"{name}.{_path(inner, each)}"
    return name


def _contains(value: object, wanted: str) -> bool:
    if isinstance(value, Mapping):
        return any(_contains(each, wanted) for each in value.values())
    if isinstance(value, list):
        return any(_contains(each, wanted) for each in value)
    return value == wanted


_Made = Callable[[datetime, int, int], Any]


def _maker(value: object) -> _Made | None:
    """A function that fills in the values of a row; ``None`` if ``value`` has none."""
    if value == _TIME:
        return lambda time, series, key: time
    if value == _SERIES:
        return lambda time, series, key: series
    if value == _NUMBER:
        return lambda time, series, key: (key % 1_000 + series % 90_000) / 10.0
    if isinstance(value, Mapping):
        made = {name: _maker(each) for name, each in value.items()}
        if all(each is None for each in made.values()):
            return None
        fixed = dict(value)
        changing = [(name, each, position) for position, (name, each) in enumerate(made.items()) if each is not None]
        # Each number of a row differs from the others.
        return lambda time, series, key: {
            **fixed,
            **{name: each(time, series, key + position * 7) for name, each, position in changing},
        }
    if isinstance(value, list):
        items = [_maker(each) for each in value]
        if all(each is None for each in items):
            return None
        pairs = list(zip(value, items, strict=True))
        return lambda time, series, key: [each if make is None else make(time, series, key) for each, make in pairs]
    return None
