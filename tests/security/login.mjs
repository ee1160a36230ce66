// Logs in with the given connection string, stores and counts measurements, prints the count.
import {MongoClient} from "mongodb";

const [uri, database] = process.argv.slice(2);
const client = new MongoClient(uri, {serverSelectionTimeoutMS: 20000});
try {
  const collection = client.db(database).collection("ts");
  await collection.insertMany([1, 2, 3].map((v) => ({t: new Date(), m: "node", v})));
  console.log(await collection.countDocuments({m: "node"}));
} finally {
  await client.close();
}
