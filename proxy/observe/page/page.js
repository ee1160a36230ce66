// Asks for the document every two seconds, keeps the points of the last minutes, and shows both.

import { SECONDS } from "./charts.js";
import { byId, write } from "./elements.js";
import { span } from "./format.js";
import { show } from "./sections.js";

const EVERY_MS = 2000;
const HIDDEN_MS = 10000; // while nobody looks
const PATIENCE_MS = 5000;
const SCHEMA = 1;

let points = [];
let latest = null;
let answeredAt = 0;
let lostAt = 0;
let isPaused = false;
let timer = 0;
let asking = false;

async function ask(after) {
  const reply = await fetch(`status.json?after=${after}`, {
    cache: "no-store",
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (!reply.ok) throw new Error(`status ${reply.status}`);
  return reply.json();
}

async function update() {
  let answer = await ask(latest ? lastNumber() : 0);
  if (latest && answer.instance !== latest.instance) {
    // Another process: its points are numbered anew. Those of the one before stay in the charts.
    points.forEach((point) => (point.number = 0));
    answer = await ask(0);
  }
  latest = answer;
  const known = points.length ? points[points.length - 1].at : 0;
  points.push(...answer.points.filter((point) => point.at > known || point.number > lastNumber()));
  const end = points.length ? points[points.length - 1].at : 0;
  points = points.filter((point) => point.at > end - SECONDS * 1000);
}

function lastNumber() {
  return points.length ? points[points.length - 1].number : 0;
}

async function turn() {
  clearTimeout(timer);
  if (isPaused || asking) return;
  asking = true;
  try {
    await update();
    answeredAt = Date.now();
    lostAt = 0;
    if (latest.schema === SCHEMA) {
      show(latest, points);
      headline(...stateOf(latest));
    } else {
      headline("attention", "Please load this page again", "The proxy was replaced by another version.");
    }
  } catch (error) {
    lostAt ||= Date.now();
    const since = new Date(lostAt).toLocaleTimeString();
    headline("unreachable", "tsproxy is not reachable", `Since ${since}. Trying again. Figures below are old.`);
    if (!(error instanceof TypeError || error instanceof DOMException)) console.warn(String(error));
  } finally {
    asking = false;
    if (!isPaused) timer = setTimeout(turn, document.hidden ? HIDDEN_MS : EVERY_MS);
  }
  age();
}

function stateOf(answer) {
  const severities = answer.notes.map((note) => note.severity);
  if (!answer.ready) return ["problem", "Not ready", sentence(answer.whyNotReady)];
  if (severities.includes("problem")) return ["problem", "Ready, with a problem", ""];
  if (severities.includes("warning")) return ["attention", "Ready, needs attention", ""];
  return ["ready", "Ready", "Clients are served, and MongoDB answers."];
}

function sentence(text) {
  const end = /[.!?]$/.test(text) ? "" : ".";
  return text ? text[0].toUpperCase() + text.slice(1) + end : "";
}

function headline(state, text, reason) {
  document.body.dataset.state = state;
  write(byId("headline"), text);
  write(byId("reason"), reason);
  const title = `${text} · tsproxy`;
  if (document.title !== title) document.title = title;
  const icon = `data:image/svg+xml,${encodeURIComponent(drawing(state))}`;
  if (byId("icon").getAttribute("href") !== icon) byId("icon").setAttribute("href", icon);
}

function drawing(state) {
  const [color, round] = { ready: ["#14734a", 8], attention: ["#c98a00", 3] }[state] ?? ["#b02a20", 2];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="${round}" fill="${color}"/></svg>`;
}

function age() {
  if (!answeredAt) return;
  const seconds = (Date.now() - answeredAt) / 1000;
  write(byId("updated"), isPaused ? `paused ${span(seconds)} ago` : `updated ${span(seconds)} ago`);
}

byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  age();
  turn();
});
document.addEventListener("visibilitychange", () => document.hidden || turn());
setInterval(age, 1000);
turn();
