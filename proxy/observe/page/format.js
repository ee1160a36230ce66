// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A count or a rate: three digits that matter, and a letter for thousands and above. */
export function count(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (value >= 1e9) return `${digits(value / 1e9)} G`;
  if (value >= 1e6) return `${digits(value / 1e6)} M`;
  return value >= 100 || Number.isInteger(value) ? whole.format(value) : digits(value);
}

/** A duration in milliseconds. */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  return ms >= 1000 ? `${digits(ms / 1000)} s` : `${digits(ms)} ms`;
}

export function bytes(value) {
  if (value >= 2 ** 30) return `${digits(value / 2 ** 30)} GiB`;
  if (value >= 2 ** 20) return `${digits(value / 2 ** 20)} MiB`;
  if (value >= 2 ** 10) return `${digits(value / 2 ** 10)} KiB`;
  return `${whole.format(value)} B`;
}

/** How long ago, or for how long: one unit, or two for hours and days. */
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function share(part, most) {
  return `${whole.format((100 * part) / most)} %`;
}

/** A name of the program as words: time_forward, duplicate_key. */
export function words(name) {
  return String(name).replaceAll("_", " ");
}

/** A number of things: 1 error, 2 errors. */
export function things(number, name) {
  return `${count(number)} ${name}${number === 1 ? "" : "s"}`;
}

function digits(value) {
  if (value === 0) return "0";
  if (value >= 100) return whole.format(value);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
