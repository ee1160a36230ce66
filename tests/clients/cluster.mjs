// The Node driver with several proxies in front of a replica set, while the primary steps down.
// Arguments: connection string of the proxies, one straight to the set, database name.
import { MongoClient } from "mongodb";

const [uri, setUri, name] = process.argv.slice(2);
const client = new MongoClient(uri, {
  serverSelectionTimeoutMS: 30000,
  heartbeatFrequencyMS: 1000,
  // Both are near enough, however busy the machine is.
  localThresholdMS: 10000,
});
const used = new Set();
let awaited = 0;
let topology = "";
client.on("connectionCheckedOut", (event) => used.add(event.address));
client.on("serverHeartbeatSucceeded", (event) => (awaited += event.awaited ? 1 : 0));
client.on("topologyDescriptionChanged", (event) => (topology = event.newDescription.type));
await client.connect();
const db = client.db(name);
const points = await db.createCollection("points", { timeseries: { timeField: "t", metaField: "m" } });
const plain = await db.createCollection("plain");
await plain.insertOne({ _id: "counter", n: 0 });
const row = (m, index) => ({ t: new Date(Date.UTC(2024, 0, 1) + index * 1000), m, v: index });
const result = {};

// Pooled connections to all proxies.
await Promise.all(Array.from({ length: 100 }, (_, index) => points.insertOne(row("pool", index))));
await Promise.all(Array.from({ length: 100 }, () => points.countDocuments({ m: "pool" })));
result.proxiesUsed = used.size;

// Cursors that go on over any of them.
const cursors = Array.from({ length: 10 }, () => points.find({ m: "pool" }, { batchSize: 7 }).sort({ t: 1 }).toArray());
result.drained = (await Promise.all(cursors)).every((rows) => rows.length === 100 && rows[99].v === 99);

// Transactions: kept, taken back, and invisible until then.
const session = client.startSession();
await session.withTransaction(async () => {
  await plain.insertOne({ _id: "kept" }, { session });
  result.seenOutside = await plain.countDocuments({ _id: "kept" });
  result.seenInside = await plain.countDocuments({ _id: "kept" }, { session });
});
session.startTransaction();
await plain.insertOne({ _id: "taken back" }, { session });
await session.abortTransaction();
await session.endSession();
result.stored = (await plain.find({}, { sort: { _id: 1 } }).toArray()).map((document) => document._id);

// Change streams, resumed by the driver from where they were.
const wanted = { $match: { operationType: "insert", "ns.coll": "plain" } };
let stream = db.watch([wanted]);
const first = stream.next();
while (stream.resumeToken === null || stream.resumeToken === undefined) await new Promise((go) => setTimeout(go, 20));
await plain.insertOne({ _id: "watched" });
result.changes = [(await first).documentKey._id];
const token = stream.resumeToken;
await stream.close();
await plain.insertOne({ _id: "while away" });
stream = db.watch([wanted], { resumeAfter: token });
result.changes.push((await stream.next()).documentKey._id);

// Retryable reads and writes while the primary steps down.
const errors = [];
const done = {};
let stopped = false;
const works = {
  insert: (index) => points.insertOne(row("failover", index)),
  update: () => plain.updateOne({ _id: "counter" }, { $inc: { n: 1 } }),
  read: async () => {
    const rows = await points.find({ m: "pool" }, { batchSize: 1000 }).toArray();
    if (rows.length !== 100) throw new Error(`${rows.length} rows`);
  },
  group: () => points.aggregate([{ $group: { _id: "$m", n: { $sum: 1 } } }]).toArray(),
  find: () => plain.findOne({ _id: "counter" }),
  remove: async (index) => {
    await points.insertOne(row("gone", index));
    const removed = await points.deleteOne({ m: "gone", v: index });
    if (removed.deletedCount !== 1) throw new Error(`${removed.deletedCount} removed`);
  },
};
const threads = Object.entries(works).flatMap(([kind, work]) =>
  [0, 1].map(async (thread) => {
    for (let index = thread; !stopped; index += 2) {
      try {
        await work(index);
        done[kind] = (done[kind] ?? 0) + 1;
      } catch (error) {
        errors.push(`${kind}: ${error}`);
      }
    }
  }),
);
const progress = async (more) => {
  const goal = Object.fromEntries(Object.keys(works).map((kind) => [kind, (done[kind] ?? 0) + more]));
  const deadline = Date.now() + 60000;
  while (Object.entries(goal).some(([kind, count]) => (done[kind] ?? 0) < count)) {
    if (Date.now() > deadline) throw new Error(`no progress: ${JSON.stringify({ goal, done, errors })}`);
    await new Promise((go) => setTimeout(go, 20));
  }
};
await progress(5);
// A member with a higher priority may take over at any time: the driver finds the one that is primary now.
const NOT_CAUGHT_UP = 262;
const NOT_PRIMARY = [10107, 11602, 13435];
const primary = new MongoClient(setUri);
for (let attempts = 5; attempts > 0; attempts--) {
  try {
    await primary.db("admin").command({ replSetStepDown: 10, secondaryCatchUpPeriodSecs: 5 });
    break;
  } catch (error) {
    // It steps down, if not for this command.
    if (error.code === 189) break;
    if (attempts === 1 || ![NOT_CAUGHT_UP, ...NOT_PRIMARY].includes(error.code)) throw error;
  }
}
await primary.close();
await progress(5);
stopped = true;
await Promise.all(threads);
await plain.insertOne({ _id: "after the step-down" });
result.changes.push((await stream.next()).documentKey._id);
await stream.close();
result.errors = errors;
result.inserted = (await points.countDocuments({ m: "failover" })) - done.insert;
result.updated = (await plain.findOne({ _id: "counter" })).n - done.update;
result.left = await points.countDocuments({ m: "gone" });
result.topology = topology;
result.streams = awaited > 0;
await client.close();
console.log(JSON.stringify(result));
