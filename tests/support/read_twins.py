"""The same measurements on both twins, and the same reads of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from pymongo.collection import Collection

from catalog.bson.codec import CODEC
from tests.support.twins import Twins, exact

NOON_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def at(minutes: float) -> DatetimeMS:
    """A time so many minutes after the first measurement."""
    return DatetimeMS(NOON_MS + int(minutes * MINUTE_MS))


def measurement(n: int) -> dict[str, Any]:
    """One of three series, seven minutes apart, with gaps, nulls, arrays and strings in its columns."""
    document: dict[str, Any] = {"_id": n, "t": at(7 * n), "m": {"a": n % 3, "tags": ["x", f"y{n % 2}"]}, "v": n}
    if n % 4:
        document["w"] = float(n) / 2
    document["s"] = ("low", "Mid", "mid", "high")[n % 4]
    document["o"] = {"p": n % 5, "list": [n, n + 1]}
    return document


def fill(twins: Twins, name: str = "x", count: int = 40, **options: Any) -> None:
    """A collection with three series over several hours."""
    twins.same({"create": name, "timeseries": {"timeField": "t", "metaField": "m"}, **options})
    twins.same({"insert": name, "documents": [measurement(n) for n in range(count)]})


def beside_plain(twins: Twins, rows: list[dict[str, Any]]) -> None:
    """The same rows in the time-series collection ``x`` and in ``plain``, both through the proxy."""
    twins.virtual.command({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    for name in ("x", "plain"):
        twins.virtual.command({"insert": name, "documents": rows})


def comparable(reply: dict[str, Any]) -> list[Any]:
    """The rows, and the pairs in them, in an order of their own; a code on 5.0, which does not have ``$fill``."""
    if reply["ok"] != 1:
        return [reply["code"]]
    rows = []
    for row in reply["cursor"]["firstBatch"]:
        groups = [sorted(pairs, key=repr) for pairs in row["rows"]] if "rows" in row else [dict(sorted(row.items()))]
        rows.append(sorted(groups, key=repr))
    return sorted((exact(row) for row in rows), key=repr)


def collection(twins: Twins, name: str = "x") -> Collection[dict[str, Any]]:
    """The collection behind the proxy, as a driver has it."""
    codec: CodecOptions[dict[str, Any]] = CODEC
    return twins.virtual.client.get_database(twins.virtual.name, codec_options=codec)[name]


def compare(twins: Twins, commands: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The replies, each equal on both sides."""
    return [twins.same(command) for command in commands]


def refusals(twins: Twins, commands: Iterable[Mapping[str, Any]]) -> list[int]:
    """The codes of commands that both sides refuse with the same code."""
    codes = []
    for command in commands:
        native, virtual = twins.both(command)
        assert native["ok"] == 0, command
        assert virtual["ok"] == 0, command
        assert virtual["code"] == native["code"], (command, native, virtual)
        codes.append(int(native["code"]))
    return codes
