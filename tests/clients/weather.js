// A weather station's day, as a person would type it into mongosh. `show` is the test's.
const dbName = db.getName();
db.createCollection("weather", {
  timeseries: { timeField: "timestamp", metaField: "sensor", granularity: "hours" },
});
const day = ISODate("2024-05-18T00:00:00Z").getTime();
const hour = 3600 * 1000;
const readings = [12, 11, 11, 12, 16, 15];
db.weather.insertMany(
  readings.map((celsius, index) => ({
    sensor: { id: 5578, kind: "temperature" },
    timestamp: new Date(day + index * 4 * hour),
    celsius: celsius,
  })),
);
db.weather.insertOne({ sensor: { id: 7, kind: "wind" }, timestamp: new Date(day + 90 * 1000), speed: 4.5 });

const found = db.weather.findOne({ timestamp: ISODate("2024-05-18T16:00:00Z") });
const perDay = db.weather
  .aggregate([
    { $match: { "sensor.kind": "temperature" } },
    {
      $group: {
        _id: { day: { $dateTrunc: { date: "$timestamp", unit: "day" } }, sensor: "$sensor.id" },
        mean: { $avg: "$celsius" },
        coldest: { $min: "$celsius" },
        readings: { $sum: 1 },
      },
    },
  ])
  .toArray();
const info = db.getCollectionInfos({ name: "weather" })[0];
const before = {
  found: { celsius: found.celsius, sensor: found.sensor },
  perDay: perDay,
  count: db.weather.countDocuments({}),
  cold: db.weather.find({ celsius: { $lt: 12 } }).sort({ timestamp: 1 }).toArray().map((row) => row.celsius),
  kinds: db.weather.distinct("sensor.kind").sort(),
  type: info.type,
  options: info.options.timeseries,
  names: db.getCollectionNames().filter((name) => !name.startsWith("system.")),
};
const dropped = db.weather.drop();
show({ ...before, dropped: dropped, left: db.getCollectionNames().filter((name) => !name.startsWith("system.")) });
