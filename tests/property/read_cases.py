"""Random measurements, and random commands that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis.strategies as st
from bson import Decimal128, Int64, ObjectId, Regex
from bson.datetime_ms import DatetimeMS
from pymongo import MongoClient

from catalog.bson.codec import CODEC
from catalog.namespaces import VirtualCollection
from tests.support.read_answers import canonical_answer

START_MS = 1_640_995_200_000
HOUR_MS = 3_600_000
EXTENDED_RANGE = (-1, -30_000, -HOUR_MS * 3, -(2**31) * 1000 - 5, 2**31 * 1000, 2**32 * 1000 + 7, 9_000_000_000_000)
COLLATIONS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"locale": "en", "strength": 2},
    {"locale": "simple"},
    {"locale": "en", "numericOrdering": True},
)

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([0.5, -1.5, 2.0, float("nan"), float("inf"), -float("inf"), Int64(7), Decimal128("2.5")]),
    st.sampled_from([Decimal128("NaN"), Decimal128("7"), True, False, None, "", "a", "A", "b", "10", "9", "é"]),
    st.sampled_from([ObjectId(b"\0" * 12), ObjectId(b"\x01" * 12), DatetimeMS(START_MS), DatetimeMS(-5), b"\x01\x02"]),
)
NUMBERS = st.integers(-20, 20)


def _nested(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(values, max_size=3),
        st.dictionaries(st.sampled_from(["p", "q", "0"]), values, max_size=2),
    )


VALUES = st.recursive(SCALARS, _nested, max_leaves=4)
METAS = st.one_of(
    st.sampled_from(["s", "S", 1, 1.0, None, [1, 2]]),
    st.fixed_dictionaries({}, optional={"a": st.sampled_from(["h1", "h2", "H1", None, 3]), "b": st.integers(0, 2)}),
)
TIMES = st.one_of(
    st.integers(0, 8 * HOUR_MS // 1000).map(lambda s: START_MS + 1000 * s),
    st.integers(0, 5).map(lambda n: START_MS + n * HOUR_MS),
)
MEASUREMENT_PATHS = ("a", "b", "n", "a.p", "a.0", "b.q", "b.p.q", "zz", "_id")
META_PATHS = ("m", "m.a", "m.b", "m.zz")


@dataclass(frozen=True, slots=True)
class Dataset:
    """Measurements of one collection, and its default collation."""

    documents: tuple[dict[str, Any], ...]
    collation: Mapping[str, Any] | None

    @property
    def extended_range(self) -> bool:
        """Whether a time lies outside 1970–2106."""
        return any(not 0 <= int(document["t"]) < 2**32 * 1000 for document in self.documents)

    def store(self, client: MongoClient[dict[str, Any]], database: str) -> None:
        """As time-series collection ``x``, and what can be read from it as ``plain``."""
        store = client.get_database(database, codec_options=CODEC)
        options: dict[str, Any] = {"collation": self.collation} if self.collation else {}
        for name in ("x", "plain"):
            store.drop_collection(name)
        store.create_collection("x", timeseries={"timeField": "t", "metaField": "m"}, **options)
        store.create_collection("plain", **options)
        store["x"].insert_many([dict(document) for document in self.documents])
        store["plain"].insert_many(list(store["x"].find()))

    def known(self, target: VirtualCollection) -> VirtualCollection:
        """What the proxy would know of the collection after these inserts."""
        return replace(target, extended_range=self.extended_range)


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    """Mostly a few hours of a few series; now and then times before 1970 or after 2106."""
    times = st.one_of(TIMES, TIMES, TIMES, st.sampled_from(EXTENDED_RANGE)) if draw(st.integers(0, 3)) == 0 else TIMES
    metas = draw(st.lists(METAS, min_size=1, max_size=4))
    document = st.fixed_dictionaries(
        {"t": times.map(DatetimeMS)},
        optional={"m": st.sampled_from(metas), "a": VALUES, "b": VALUES, "n": NUMBERS},
    )
    documents = draw(st.lists(document, min_size=draw(st.sampled_from([1, 12, 30])), max_size=60))
    if draw(st.booleans()):
        documents = [{key: value for key, value in d.items() if key != "a"} | {"a": n} for n, d in enumerate(documents)]
    rows = tuple({"_id": n, **document} for n, document in enumerate(documents))
    return Dataset(rows, draw(st.sampled_from(COLLATIONS[:2])))


@dataclass(frozen=True, slots=True)
class ReadCommand:
    """A command without its collection; ``ordered`` tells whether its rows have one order only."""

    name: str
    body: Mapping[str, Any]
    ordered: bool = False
    folds_case: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def on(self, collection: str) -> dict[str, Any]:
        """The command on this collection."""
        return {self.name: collection, **self.body, **self.options}

    def answer(self, reply: Mapping[str, Any]) -> Any:
        """What of a reply to this command is certain."""
        chooses = self.name == "distinct" or any("$group" in stage for stage in self.body.get("pipeline", ()))
        return canonical_answer(self.name, reply, ordered=self.ordered, folds_case=self.folds_case, chooses=chooses)


@st.composite
def commands(draw: st.DrawFn, dataset: Dataset) -> ReadCommand:
    """A find, count, distinct or aggregate."""
    collation = draw(st.sampled_from((None, None, *COLLATIONS)))
    options = {"collation": collation} if collation else {}
    folds = (collation or dataset.collation or {}).get("locale", "simple") != "simple"
    kind = draw(st.sampled_from(["find", "find", "count", "distinct", "aggregate", "aggregate", "aggregate"]))
    query = draw(filters())
    match kind:
        case "find":
            body, ordered = draw(_find(query))
        case "count":
            body, ordered = {"query": query, **draw(_window())}, False
        case "distinct":
            key = draw(st.sampled_from((*META_PATHS, *MEASUREMENT_PATHS, "t")))
            body, ordered = {"key": key, "query": query}, False
        case _:
            stages, ordered = draw(_pipelines(query))
            body = {"pipeline": stages, "cursor": {}}
    return ReadCommand(kind, body, ordered, folds, options)


@st.composite
def filters(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    """A match predicate, with meta, time and measurement parts."""
    kind = draw(st.integers(0, 9)) if depth else 0
    if kind >= 8:
        arms = draw(st.lists(filters(depth - 1), min_size=1, max_size=3))
        return {draw(st.sampled_from(["$and", "$or", "$or", "$nor"])): arms}
    if kind == 7:
        return {"$expr": draw(_comparisons())}
    predicate: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(("t", "t", *META_PATHS, *MEASUREMENT_PATHS)))
        predicate[path] = draw(_operands(path))
    return predicate


def _values_for(path: str) -> st.SearchStrategy[Any]:
    if path == "t":
        far = st.sampled_from(EXTENDED_RANGE)
        return st.one_of(TIMES, TIMES, TIMES, far).map(DatetimeMS)
    if path.startswith("m"):
        return st.one_of(METAS, st.sampled_from(["h1", "H1", 3, 1]))
    if path in ("n", "_id"):
        return st.one_of(NUMBERS, SCALARS)
    return st.one_of(SCALARS, VALUES)


@st.composite
def _operands(draw: st.DrawFn, path: str) -> Any:
    values = _values_for(path)
    kind = draw(st.integers(0, 11))
    if kind <= 1:
        return draw(values)
    if kind <= 7:
        operators = st.sampled_from(["$gt", "$gte", "$lt", "$lte", "$eq", "$ne"])
        return {draw(operators): draw(values) for _ in range(draw(st.integers(1, 2)))}
    rare: st.SearchStrategy[Any] = st.one_of(
        st.lists(values, max_size=3).map(lambda v: {"$in": v}),
        st.lists(values, max_size=3).map(lambda v: {"$nin": v}),
        st.booleans().map(lambda v: {"$exists": v}),
        st.sampled_from(["number", "string", "array", "object", "null", "date"]).map(lambda v: {"$type": v}),
        values.map(lambda v: {"$not": {"$gt": v}}),
        values.map(lambda v: {"$elemMatch": {"$gte": v}}),
        st.integers(0, 2).map(lambda v: {"$size": v}),
        st.sampled_from([{"$mod": [2, 0]}, {"$regex": "^a"}, Regex("h", "i"), {"$all": [1]}, {"$elemMatch": {"p": 1}}]),
    )
    return draw(rare)


@st.composite
def _comparisons(draw: st.DrawFn) -> Any:
    path = draw(st.sampled_from(("t", "m", "m.a", "a", "n", "b.q", "a.p", "zz")))
    operator = draw(st.sampled_from(["$lt", "$lte", "$gt", "$gte", "$eq", "$ne"]))
    return {operator: [f"${path}", {"$literal": draw(_values_for(path))}]}


@st.composite
def _window(draw: st.DrawFn) -> dict[str, Any]:
    window = {}
    if draw(st.booleans()):
        window["limit"] = draw(st.integers(1, 15))
    if draw(st.integers(0, 3)) == 0:
        window["skip"] = draw(st.integers(0, 5))
    return window


@st.composite
def _total_sort(draw: st.DrawFn) -> dict[str, int]:
    paths = draw(st.lists(st.sampled_from(("t", "t", "m", "m.a", "a", "n")), max_size=2, unique=True))
    return {path: draw(st.sampled_from([1, -1])) for path in (*paths, "_id")}


@st.composite
def _find(draw: st.DrawFn, query: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    body: dict[str, Any] = {"filter": query, "batchSize": 1000}
    if draw(st.booleans()):
        return body, False
    body |= {"sort": draw(_total_sort()), **draw(_window())}
    projection = draw(
        st.sampled_from(
            [
                {},
                {"a": 1},
                {"a": 0},
                {"m": 1, "_id": 0},
                {"x": "$a"},
                {"b.q": 0, "m.a": 0},
                {"b": {"q": 0}},
                {"b": {"q": 1}},
            ]
        )
    )
    if projection:
        body["projection"] = projection
    return body, True


ACCUMULATORS: tuple[Mapping[str, Any], ...] = (
    {"$sum": 1}, {"$sum": 3}, {"$count": {}}, {"$sum": "$n"}, {"$avg": "$n"}, {"$min": "$a"}, {"$max": "$a"},
    {"$max": "$n"}, {"$min": "$n"}, {"$max": "$t"}, {"$min": "$t"}, {"$max": "$m.b"}, {"$min": "$m"},
    {"$max": "$b"}, {"$min": "$b"}, {"$max": {"$add": ["$n", 1]}}, {"$max": "$b.q"}, {"$max": "$_id"},
)  # fmt: skip
KEYS: tuple[Any, ...] = (
    None, "$m", "$m.a", "$m.b", {"a": "$m.a"}, {"a": "$m.a", "b": "$m.b"}, "$n", {"$toLower": {"$type": "$m"}},
    {"$dateTrunc": {"date": "$t", "unit": "hour"}}, "$zz",
)  # fmt: skip


@st.composite
def _pipelines(draw: st.DrawFn, query: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    stages: list[dict[str, Any]] = [{"$match": query}] if draw(st.integers(0, 2)) else []
    between = draw(st.integers(0, 9))
    if between == 0:
        stages.append({"$set": draw(st.sampled_from([{"n": {"$type": "$a"}}, {"t": 5}, {"m": "$a"}, {"a.p": 3}]))})
        stages.append({"$match": draw(filters(1))})
    elif between == 1:
        stages += [{"$sort": draw(_total_sort())}, {"$match": draw(filters(1))}]
    elif between == 2:
        stages += [{"$unset": draw(st.sampled_from(["a", "n", "m", "m.a", "t"]))}, {"$match": draw(filters(1))}]
    elif between == 3:
        stages += [
            {"$project": draw(st.sampled_from([{"a": 1}, {"n": "$a", "m": 1}, {"m.a": 1, "t": 1}, {"b": {"q": 0}}]))}
        ]
        stages += [{"$match": draw(filters(1))}]
    last = draw(st.integers(0, 5))
    if last <= 1:
        names = ("x", "y", "z")
        picked = draw(st.lists(st.sampled_from(ACCUMULATORS), max_size=3))
        group = {"_id": draw(st.sampled_from(KEYS)), **dict(zip(names, picked, strict=False))}
        stages.append({"$group": group})
        return stages, False
    if last == 2:
        stages.append({"$count": "rows"})
        return stages, False
    if last == 3:
        stages += draw(_last_points())
        return stages, False
    if last == 4:
        skip = draw(st.integers(0, 4))
        stages += [{"$sort": draw(_total_sort())}, {"$skip": skip}, {"$limit": draw(st.integers(1, 12))}]
        return stages, True
    return stages, False


@st.composite
def _last_points(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Times repeat within a series, so only the time of the picked measurement is certain."""
    direction = draw(st.sampled_from([1, -1]))
    before = draw(st.sampled_from([{}, {"m.a": 1}, {"m": -1}, {"m.b": 1, "m.a": 1}]))
    key = draw(st.sampled_from(["$m.a", "$m", {"a": "$m.a", "b": "$m.b"}, {"a": "$m.a"}, None]))
    pick = draw(st.sampled_from(["$first", "$last"]))
    value = draw(st.sampled_from(["$t", "$t", {"$add": ["$t", 1]}]))
    return [{"$sort": {**before, "t": direction}}, {"$group": {"_id": key, "latest": {pick: value}}}]
