"""What a person types into mongosh works through the proxy."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.admin.table import COMMANDS
from tests.support.node import CLIENTS, mongosh_json
from tests.support.proxy import ProxyProcess

pytestmark = [pytest.mark.drivers, pytest.mark.timeout(700)]

WEATHER = (CLIENTS / "weather.js").read_text()

EXPECTED: dict[str, Any] = {
    "found": {"celsius": 16, "sensor": {"id": 5578, "kind": "temperature"}},
    "perDay": [
        {
            "_id": {"day": {"$date": "2024-05-18T00:00:00Z"}, "sensor": 5578},
            "mean": 12.833333333333334,
            "coldest": 11,
            "readings": 6,
        }
    ],
    "count": 7,
    "cold": [11, 11],
    "kinds": ["temperature", "wind"],
    "type": "timeseries",
    "options": {
        "timeField": "timestamp",
        "metaField": "sensor",
        "granularity": "hours",
        "bucketMaxSpanSeconds": 2592000,
    },
    "names": ["weather"],
    "dropped": True,
    "left": [],
}


def test_weather_example(proxy: ProxyProcess, db_name: str) -> None:
    assert mongosh_json(f"{proxy.uri}{db_name}", WEATHER) == EXPECTED


def test_weather_example_says_the_same_on_mongod_itself(mongod: Any, db_name: str) -> None:
    """What is expected above is what a real server does."""
    uri = mongod.uri.replace("/?", f"/{db_name}?")
    assert mongosh_json(uri, WEATHER) == EXPECTED


def test_what_the_readme_says_to_paste(proxy: ProxyProcess, db_name: str) -> None:
    readme = (CLIENTS.parent.parent / "README.md").read_text()
    pasted = readme.split("```js\n")[1].split("```")[0]
    shown = """
    show({
      means: db.observations.aggregate([
        { $group: { _id: "$station", mean: { $avg: "$celsius" } } }, { $sort: { _id: 1 } }
      ]).toArray(),
      buckets: db.getCollection("system.buckets.observations").find().toArray().map((bucket) => bucket.meta).sort(),
    })
    """
    assert mongosh_json(f"{proxy.uri}{db_name}", pasted + shown) == {
        "means": [{"_id": "north", "mean": 11.75}, {"_id": "south", "mean": 14.2}],
        "buckets": ["north", "south"],
    }


HELPERS = """
const names = (value) => Object.keys(value).filter((name) => name != "tsproxy").sort();
const c = db.helped;
const rows = Array.from({length: 500}, (_, n) => ({_id: n, t: new Date(1.7e12 + n), m: n % 5, v: n}));
const helpers = {
  create: () => db.createCollection("helped", {timeseries: {timeField: "t", metaField: "m"}}).ok,
  insert: () => c.insertMany(rows).acknowledged,
  infos: () => db.getCollectionInfos().map((each) => [each.name, each.type, names(each.info)]).sort(),
  exists: () => c.exists().options,
  databaseStats: () => names(db.stats()),
  stats: () => [names(c.stats()), names(c.stats().timeseries), c.stats().ns, c.stats().nindexes],
  sizes: () => [c.dataSize() > 0, c.storageSize() > 0, c.totalSize() > 0, c.totalIndexSize() >= 0],
  validate: () => c.validate().ok,
  isCapped: () => c.isCapped(),
  latencyStats: () => names(c.latencyStats()[0]),
  explain: () => [names(c.explain().find({m: 3}).finish()), names(c.find({v: 3}).explain("executionStats"))],
  explainRemove: () => names(c.explain().remove({m: 1})),
  createIndexes: () => [c.createIndex({m: 1, t: -1}), c.createIndex({v: 1}), c.hideIndex("v_1").ok],
  unique: () => c.createIndex({w: 1}, {unique: true}),
  indexes: () => c.getIndexes().sort((one, other) => (one.name < other.name ? -1 : 1)),
  indexStats: () => c.aggregate([{$indexStats: {}}, {$sort: {name: 1}}]).toArray().map((each) => each.key),
  dropIndex: () => c.dropIndex({v: 1}).nIndexesWas,
  counts: () => [c.count(), c.countDocuments({v: {$lt: 9}}), c.estimatedDocumentCount()],
  itcount: () => c.find().batchSize(7).itcount(),
  bulk: () => {
    const bulk = c.initializeOrderedBulkOp();
    bulk.insert({_id: "a", t: new Date(0), m: "a"});
    bulk.find({m: "a"}).update({$set: {m: "b"}});
    bulk.find({m: "b"}).delete();
    const done = bulk.execute();
    return [done.insertedCount, done.matchedCount, done.deletedCount];
  },
  findAndModify: () => c.findAndModify({query: {_id: 3}, update: {$set: {v: 9}}}),
  mapReduce: () => c.mapReduce(function () { emit(this.m, 1) }, (key, all) => all.length, {out: {inline: 1}}),
  renameCollection: () => c.renameCollection("other"),
  watch: () => c.watch(),
  view: () => [db.createView("seen", "helped", [{$match: {v: {$lt: 9}}}]).ok, db.seen.countDocuments()],
  currentOp: () => [Array.isArray(db.currentOp().inprog), db.killOp(999999999).ok],
  serverStatus: () => names(db.serverStatus()),
  buildInfo: () => names(db.serverBuildInfo()),
  drop: () => [c.drop(), c.drop(), db.getCollectionNames().sort()],
};
const said = {};
for (const [name, helper] of Object.entries(helpers)) {
  try { said[name] = helper() } catch (error) { said[name] = [error.code, error.message] }
}
show(said);
"""


def test_helpers_say_what_they_say_on_mongod_itself(proxy: ProxyProcess, mongod: Any, db_name: str) -> None:
    native = mongosh_json(mongod.uri.replace("/?", f"/{db_name}?"), HELPERS)
    assert native["create"] == 1
    mongod.shared_client.drop_database(db_name)
    assert mongosh_json(f"{proxy.uri}{db_name}", HELPERS) == native


ADMINISTERING = """
const admin = (name, fields) => db.adminCommand({tsproxy: name, ...fields});
const own = db.hello().connectionId;
const name = db.getName() + ".observations";
db.createCollection("observations", {timeseries: {timeField: "t", metaField: "station"}});
db.observations.insertOne({t: new Date(), station: "north", celsius: 12.5});
let refusal = "";
try { admin("stat") } catch (error) { refusal = error.codeName + ": " + error.message }
const buckets = admin("buckets", {collection: name, meta: "north"});
const closed = admin("close", {collection: name});
const paused = admin("pause");
const held = admin("clients", {limit: 1000}).clients.filter((each) => each.connection == own);
const resumed = admin("resume");
db.observations.insertOne({t: new Date(), station: "north", celsius: 13});
show({
  state: admin("status").state,
  commands: Object.keys(admin("help").commands).length,
  refusal,
  rows: buckets.buckets.map((each) => each.rows),
  closed: closed.closed,
  paused: [paused.state, paused.running],
  application: held[0].application.split(" ")[0],
  resumed: resumed.was,
  reloaded: admin("reload").needRestart,
  stored: db.getCollection("system.buckets.observations").countDocuments(),
  config: admin("config").settings.max_connections,
});
"""


def test_administering(proxy: ProxyProcess, db_name: str) -> None:
    shown = mongosh_json(f"{proxy.uri}{db_name}", ADMINISTERING)
    assert shown.pop("refusal").startswith("BadValue: 'stat' is not an admin command; did you mean 'status'?")
    assert shown == {
        "state": "serving",
        "commands": len(COMMANDS),
        "rows": [1],
        "closed": 1,
        "paused": ["paused", 0],
        "application": "mongosh",
        "resumed": "paused",
        "reloaded": [],
        "stored": 2,
        "config": 10_000,
    }
