// Small charts over the last minutes, drawn as SVG with a text that says the same.

import { makeSvg } from "./elements.js";

export const SECONDS = 300;
const WIDTH = 300;
const HEIGHT = 60;
const LONG_SECONDS = 5;
const GAP = 3; // intervals without a point that are a gap: the proxy or the page was away

/**
 * Draw `valueOf(point)` of each point, `null` where there is none. `name` and `format` are for the text alternative.
 * Points with `isBad(point)` have a band behind them. Returns the least and the greatest value, as text.
 */
export function draw(svg, points, valueOf, name, format, isBad = () => false) {
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const end = points.length ? points[points.length - 1].at : 0;
  const shown = points.filter((point) => point.at > end - SECONDS * 1000);
  const values = shown.map(valueOf);
  const known = values.filter((value) => value !== null);
  const top = Math.max(...known, 0) || 1;
  const x = (at) => Math.max(0, rounded(WIDTH - ((end - at) / 1000 / SECONDS) * WIDTH));
  const y = (value) => rounded(HEIGHT - 2 - (value / top) * (HEIGHT - 6));
  const parts = [makeSvg("line", { class: "base", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 })];
  for (const point of shown.filter(isBad)) {
    const left = x(point.at - 1000 * point.seconds);
    parts.push(makeSvg("rect", { class: "bad", x: left, y: 0, width: Math.max(1, x(point.at) - left), height: HEIGHT }));
  }
  for (const run of runs(shown, values)) {
    // A point stands for the time before it, which is long if the proxy was stopped meanwhile.
    const beginning = (point) => x(point.at - 1000 * point.seconds);
    const [first, last] = [beginning(run[0][0]), x(run[run.length - 1][0].at)];
    const places = run.flatMap(([point, value], index) => [
      ...(index === 0 || point.seconds > LONG_SECONDS ? [`${beginning(point)},${y(value)}`] : []),
      `${x(point.at)},${y(value)}`,
    ]);
    const line = places.join(" ");
    parts.push(makeSvg("polygon", { class: "area", points: `${first},${HEIGHT} ${line} ${last},${HEIGHT}` }));
    parts.push(makeSvg("polyline", { class: "line", points: line }));
  }
  svg.replaceChildren(...parts);
  svg.setAttribute("aria-label", known.length ? described(name, known, format) : `${name}: nothing yet`);
  return known.length ? `${format(Math.min(...known))} to ${format(Math.max(...known))} in five minutes` : "";
}

function described(name, known, format) {
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const latest = format(known[known.length - 1]);
  return `${name} in the last five minutes: from ${format(least)} to ${format(most)}, now ${latest}`;
}

/** Points with values, divided where some are missing. */
function runs(points, values) {
  const found = [];
  let run = [];
  points.forEach((point, index) => {
    const before = run.length ? run[run.length - 1][0] : null;
    const away = before !== null && point.at - before.at > GAP * 1000 * point.seconds;
    if ((values[index] === null || away) && run.length) {
      found.push(run);
      run = [];
    }
    if (values[index] !== null) run.push([point, values[index]]);
  });
  if (run.length) found.push(run);
  return found;
}

function rounded(number) {
  return Math.round(number * 10) / 10;
}
