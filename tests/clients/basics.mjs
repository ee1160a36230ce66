// The Node driver does once what applications do all the time. Arguments: connection string, database name.
import { MongoClient } from "mongodb";

const [uri, name] = process.argv.slice(2);
const client = new MongoClient(uri, { serverSelectionTimeoutMS: 20000 });
await client.connect();
const db = client.db(name);
const start = Date.UTC(2024, 0, 1);
const row = (index) => ({ t: new Date(start + index * 1000), device: { id: index % 3 }, value: index });

await db.createCollection("points", { timeseries: { timeField: "t", metaField: "device" } });
const points = db.collection("points");
const one = await points.insertOne(row(0));
const many = await points.insertMany(Array.from({ length: 99 }, (_, index) => row(index + 1)));
// A small batch size makes the cursor go on with getMore.
const drained = await points.find({}, { batchSize: 7 }).sort({ t: 1 }).toArray();
const sums = await points
  .aggregate([{ $group: { _id: "$device.id", sum: { $sum: "$value" } } }, { $sort: { _id: 1 } }])
  .toArray();
let missingTime = null;
try {
  await points.insertOne({ value: 1 });
} catch (error) {
  missingTime = error.code;
}
const listed = await db.listCollections({ name: "points" }).toArray();
const result = {
  one: one.acknowledged,
  many: many.insertedCount,
  values: drained.map((document) => document.value),
  sums: sums,
  counted: await points.countDocuments({ value: { $gte: 90 } }),
  estimated: await points.estimatedDocumentCount(),
  devices: (await points.distinct("device.id")).sort(),
  missingTime: missingTime,
  type: listed[0].type,
  dropped: await points.drop(),
  left: (await db.listCollections({ name: { $not: /^system/ } }).toArray()).length,
};
await client.close();
console.log(JSON.stringify(result));
