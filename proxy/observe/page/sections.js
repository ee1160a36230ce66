// The sections of the page, each filled from the document and the points of the last minutes.

import { draw } from "./charts.js";
import { byId, list, make, makeSvg, terms, write } from "./elements.js";
import { bytes, count, duration, share, span, things, words } from "./format.js";

const WAYS = {
  ingest: "inserts of measurements",
  translate: "other commands on time-series collections",
  relay: "relayed unchanged",
  answer: "answered by the proxy",
  admin: "admin commands",
  refuse: "refused",
  "commit insert": "commits at MongoDB: new buckets",
  "commit update": "commits at MongoDB: updates",
};
const SEVERITIES = { problem: "Problem", warning: "Warning", note: "Note" };
const P99 = 3; // place in [requests, p50, p95, p99]

export function show(answer, points) {
  about(answer);
  notes(answer);
  tiles(answer, points);
  ways(answer, points);
  buckets(answer, points);
  backend(answer, points);
  collections(answer);
  errors(answer);
  slow(answer);
}

function about(answer) {
  const uptime = (Date.parse(answer.at) - Date.parse(answer.startedAt)) / 1000;
  write(byId("about"), `${answer.tsproxy} at ${location.host}, up ${span(uptime)}`);
}

function notes(answer) {
  list(
    byId("notes"),
    answer.notes,
    (note) => note.text,
    (note) => make("li", { class: note.severity }, make("b"), document.createTextNode("")),
    (item, note) => {
      write(item.firstChild, SEVERITIES[note.severity] ?? "");
      item.lastChild.data = ` ${note.text}`;
    },
  );
}

const rate = (name) => (point) => (point.counts[name] ?? 0) / point.seconds;
const gauge = (name) => (point) => point.gauges[name] ?? 0;
const latencyOf = (way) => (point) => point.ways[way]?.[P99] ?? null;
const isNotReady = (point) => !point.ready;

function perCommit(counts) {
  return counts.commits ? (counts.batched ?? 0) / counts.commits : null;
}

function tiles(answer, points) {
  const { counts, seconds, ways: found } = answer.now;
  const per = (name) => (seconds ? (counts[name] ?? 0) / seconds : null);
  write(byId("measurements"), count(per("measurements")));
  write(byId("latency"), duration(found.ingest?.[P99]));
  write(byId("per-commit"), count(perCommit(counts)));
  write(byId("commits"), `${count(per("commits"))} commits per second`);
  write(byId("requests"), count(per("requests")));
  const chart = (id, value, name, format) =>
    write(byId(`${id}-range`), draw(byId(`${id}-chart`), points, value, name, format, isNotReady));
  chart("measurements", rate("measurements"), "Measurements per second", count);
  chart("latency", latencyOf("ingest"), "99th percentile of inserts", duration);
  chart("per-commit", (point) => perCommit(point.counts), "Measurements per commit", count);
  chart("requests", rate("requests"), "Requests per second", count);
}

function ways(answer, points) {
  const order = Object.keys(WAYS);
  const place = (way) => (order.includes(way) ? order.indexOf(way) : order.length);
  const rows = Object.keys(answer.recent.ways).sort((a, b) => place(a) - place(b));
  byId("ways-empty").hidden = rows.length > 0;
  const failed = {};
  for (const error of answer.errors) failed[error.way] = (failed[error.way] ?? 0) + error.count;
  list(byId("ways"), rows, (way) => way, wayRow, (row, way) => {
    const [requests, p50, p95, p99] = answer.now.ways[way] ?? [0];
    const errorCount = failed[way] ?? 0;
    const [head, perSecond, median, most, nearlyAll, trend] = row.children;
    write(head.lastChild, errorCount ? `${things(errorCount, "error")} in five minutes` : WAYS[way] ?? "");
    head.lastChild.className = errorCount ? "bad" : "about";
    write(perSecond, answer.now.seconds ? count(requests / answer.now.seconds) : "–");
    write(median, duration(p50));
    write(most, duration(p95));
    write(nearlyAll, duration(p99));
    draw(trend.firstChild, points, latencyOf(way), `99th percentile of ${words(way)}`, duration);
  });
}

function wayRow(way) {
  const head = make("th", { scope: "row" }, words(way), make("small"));
  const cells = ["", "", "mid", ""].map((name) => make("td", { class: name }));
  return make("tr", {}, head, ...cells, make("td", { class: "wide" }, makeSvg("svg", { class: "chart" })));
}

function buckets(answer, points) {
  const { gauges, limits } = answer;
  write(byId("open"), count(gauges.openBuckets));
  write(byId("unjoined"), count(gauges.unjoinedParts));
  draw(byId("open-chart"), points, gauge("openBuckets"), "Open buckets", count);
  draw(byId("unjoined-chart"), points, gauge("unjoinedParts"), "Unjoined parts", count);
  const memory = limits.timeseries_idle_bucket_expiry_memory_usage_threshold;
  const { counts, seconds } = answer.now;
  const per = (name) => (seconds ? `${count((counts[name] ?? 0) / seconds)} per second` : "–");
  terms(byId("buckets"), [
    ["Memory", memory ? `${bytes(gauges.catalogBytes)} of ${bytes(memory)}` : bytes(gauges.catalogBytes)],
    ["Created, updated", `${per("bucketsInserted")}, ${per("bucketsUpdated")}`],
    ["Write batches", `${per("batches")}, ${count(counts.commits ? counts.batches / counts.commits : null)} per commit`],
    ["Parts joined", per("joinedParts")],
  ]);
  const rows = Object.entries(answer.recent.rollovers).sort((a, b) => b[1] - a[1]);
  const most = rows.length ? rows[0][1] : 1;
  byId("rollovers-empty").hidden = rows.length > 0;
  list(byId("rollovers"), rows, ([reason]) => reason, rolloverRow, (row, [, number]) => {
    row.querySelector("rect").setAttribute("width", String((100 * number) / most));
    write(row.lastChild, count(number));
  });
}

function rolloverRow([reason]) {
  const bar = makeSvg("rect", { x: 0, y: 0, height: 8 });
  const drawing = makeSvg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, bar);
  return make("li", {}, make("span", {}, words(reason)), drawing, make("span"));
}

function backend(answer, points) {
  const { backend: shown, gauges, limits, totals } = answer;
  const rows = [["MongoDB", shown.answers ? "answers" : "does not answer"]];
  if (shown.version) rows.push(["Server", `${shown.version}, ${shown.kind}`]);
  if (shown.uri) rows.push(["Address", shown.uri]);
  if (shown.version) rows.push(["Access control", shown.accessControl ? "enabled" : "disabled"]);
  if (shown.growsInParts !== undefined) rows.push(["Buckets grow", shown.growsInParts ? "in parts under load" : "in place"]);
  if (answer.otherProxies !== null) rows.push(["Other proxies", answer.otherProxies ? "yes" : "none"]);
  terms(byId("backend"), rows);
  const pending = limits.max_pending_measurements;
  write(byId("uncommitted"), count(gauges.uncommittedMeasurements));
  draw(byId("uncommitted-chart"), points, gauge("uncommittedMeasurements"), "Uncommitted measurements", count);
  const { counts, seconds } = answer.now;
  const per = (name) => (seconds ? `${bytes((counts[name] ?? 0) / seconds)}/s` : "–");
  terms(byId("clients"), [
    ["Limit of these", pending ? `${count(pending)}, ${share(gauges.uncommittedMeasurements, pending)} used` : "–"],
    ["Connections", `${count(gauges.connections)} of at most ${count(limits.max_connections)}`],
    ["Received, sent", `${per("receivedBytes")}, ${per("sentBytes")}`],
    ["Since the start", `${count(totals.measurements)} measurements, ${count(totals.requests)} requests`],
  ]);
}

function collections(answer) {
  const found = answer.collections;
  const rows = found?.busiest ?? [];
  byId("collections").closest("table").hidden = rows.length === 0;
  const more = found && found.examined < found.total ? ` Only ${count(found.examined)} of ${count(found.total)} were looked at.` : "";
  const empty = found ? (found.seconds ? "No measurements in the last ten seconds." : "Not known yet.") : HIDDEN;
  write(byId("collections-empty"), rows.length ? more : empty + more);
  list(byId("collections"), rows, (row) => row.collection, collectionRow, (row, item) => {
    const cells = row.children;
    write(cells[1], count(item.measurementsPerSecond));
    write(cells[2], count(item.measurementsPerBatch));
    write(cells[3], count(item.series));
  });
}

const HIDDEN = "Not shown here: the setting status_page decides who sees names.";

function collectionRow(item) {
  const head = make("th", { scope: "row" }, item.collection);
  return make("tr", {}, head, make("td"), make("td"), make("td", { class: "wide" }));
}

function errors(answer) {
  byId("errors-empty").hidden = answer.errors.length > 0;
  byId("errors").closest("table").hidden = answer.errors.length === 0;
  list(
    byId("errors"),
    answer.errors,
    (error) => `${error.class} ${error.command} ${error.way}`,
    (error) => make("tr", {}, make("th", { scope: "row" }, words(error.class)), make("td", { class: "word" }, error.command, make("small", {}, error.way)), make("td")),
    (row, error) => write(row.lastChild, count(error.count)),
  );
}

function slow(answer) {
  const found = answer.slow;
  const groups = found?.commands ?? [];
  const threshold = found?.thresholdMs;
  const from = threshold === null || threshold === undefined ? "" : `, from ${duration(threshold)}`;
  write(byId("threshold"), `five minutes${from}`);
  byId("slow-empty").hidden = groups.length > 0;
  const number = `${count(answer.recent.counts.slow ?? 0)} in the last five minutes.`;
  write(byId("slow-empty"), found ? "None." : `${number} ${HIDDEN}`);
  const now = Date.parse(answer.at);
  list(byId("slow"), groups, kindOf, slowRow, (row, group) => {
    const { slowest } = group;
    const [worst, about] = row.querySelectorAll("summary > *");
    write(worst, slowest.duration_ms === undefined ? "" : duration(slowest.duration_ms));
    // An insert that has created an ordinary collection is listed, too, and has no duration.
    const what = slowest.duration_ms === undefined ? `${slowest.event}, ` : "";
    const others = what || (group.count > 1 ? `slowest of ${count(group.count)}, latest ` : "");
    write(about, `${others}${span((now - Date.parse(group.latestAt)) / 1000)} ago`);
    terms(row.querySelector("dl"), Object.entries(slowest).map(([key, value]) => [words(key), oneText(value)]));
  });
}

const kindOf = ({ slowest }) => JSON.stringify([slowest.event, slowest.command, slowest.namespace, slowest.shape]);
const oneText = (value) => (Array.isArray(value) ? value.join("\n") : String(value));

function slowRow({ slowest }) {
  const name = ` ${slowest.command ?? ""} ${slowest.namespace ?? ""} `;
  const summary = make("summary", {}, make("b"), name, make("span", { class: "unit" }));
  return make("li", {}, make("details", {}, summary, make("dl")));
}
