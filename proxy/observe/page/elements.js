// Elements of the page. Everything that comes from the proxy is only ever put in as text or as a number.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** A new element with attributes and children; texts become text nodes. */
export function make(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function makeSvg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Change a text only if it differs, so that nothing is announced or selected away for no reason. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Give a list one child per item, keeping those that are there: the focus and what is open stay. */
export function list(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const taken = new Set();
  let place = parent.firstElementChild;
  for (const item of items) {
    let key = keyOf(item);
    while (taken.has(key)) key += "+";
    taken.add(key);
    let child = old.get(key);
    if (child) {
      old.delete(key);
    } else {
      child = create(item);
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  for (const child of old.values()) child.remove();
  // What was moved has lost the focus.
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

/** Fill a list of terms, `[term, description]` each. */
export function terms(dl, rows) {
  while (dl.children.length > 2 * rows.length) dl.lastElementChild.remove();
  while (dl.children.length < 2 * rows.length) dl.append(make("dt"), make("dd"));
  rows.forEach(([term, text], index) => {
    write(dl.children[2 * index], term);
    write(dl.children[2 * index + 1], text);
  });
}
