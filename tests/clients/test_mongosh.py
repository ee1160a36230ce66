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
