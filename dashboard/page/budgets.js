// Budgets by upstream and policy: a row for each, which opens its details.

import {byId, draw, keep, make, put, say} from "./dom.js";
import {firstSince, spark} from "./chart.js";
import {makeDetails, showDetails} from "./details.js";
import {fullness, holds, isClosed, nextStart} from "./state.js";
import {known, noPoints, now} from "./stream.js";
import {count, number, word} from "./words.js";

/**
 * @typedef {import("./stream.js").Budget} Budget
 * @typedef {{id: string, b: Budget}} Item
 * @typedef {{root: HTMLElement, id: string, row: HTMLElement, name: HTMLElement, key: HTMLElement, limit: HTMLElement, tag: HTMLElement,
 *   use: HTMLElement, bar: SVGElement, spark: SVGElement, starts: HTMLElement, waiting: HTMLElement, next: HTMLElement,
 *   details: import("./details.js").Details | null}} Row
 * @typedef {{root: HTMLElement, name: HTMLElement, limit: HTMLElement, note: HTMLElement, title: HTMLElement, rows: HTMLElement,
 *   views: Map<string, Row>, more: HTMLElement, all: boolean, order: Map<string, number>, sorted: number}} Policy
 * @typedef {{root: HTMLElement, title: HTMLElement, views: Map<string, Policy>}} Host
 */

/** How many keys of a policy are shown, and for how long their order stays, in milliseconds. */
const fewKeys = 5, orderStays = 10e3;

/** How much time a small chart shows, in milliseconds. */
const sparkTime = 120e3;

/** @type {Map<string, Host>} */
const hosts = new Map();

/** Shows all budgets. */
export function showBudgets() {
  const s = known.state;
  if (!s) return;
  /** @type {Map<string, Map<string, Item[]>>} */
  const groups = new Map();
  for (const [id, b] of Object.entries(s.budgets)) {
    const host = groups.get(b.group) ?? new Map();
    groups.set(b.group, host);
    host.set(b.policy, [...(host.get(b.policy) ?? []), {id, b}]);
  }
  const sorted = [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
  keep(byId("budgets"), hosts, sorted, ([group]) => group, createHost, updateHost);
  say(byId("left-out"), word("left out", {n: count(s.budgetsLeftOut ?? 0)}));
  byId("left-out").hidden = !s.budgetsLeftOut;
}

/** @returns {Host} */
function createHost() {
  const title = make("h2");
  const head = ["", word("chart used"), word("last minutes"), word("starts"), word("waiting"), word("next"), ""].map((label) => make("span", {}, label));
  return {root: make("section", {class: "card host"}, title, make("div", {class: "row head", "aria-hidden": "true"}, ...head)), title, views: new Map()};
}

/**
 * @param {Host} host
 * @param {[string, Map<string, Item[]>]} entry
 */
function updateHost(host, [group, policies]) {
  say(host.title, group === "*" || group === "" ? word("every host") : group);
  const idle = (/** @type {Item[]} */ items) => Number(items.every((i) => i.b.kind === "unlimited" && !isClosed(i.b))); // they come last
  const sorted = [...policies].sort(([a, x], [b, y]) => idle(x) - idle(y) || (a < b ? -1 : 1));
  keep(host.root, host.views, sorted, ([name]) => name, createPolicy, updatePolicy);
}

/** @returns {Policy} */
function createPolicy() {
  const name = make("b"), limit = make("span", {class: "note"}), note = make("span", {class: "note"});
  const title = make("h3", {class: "title"}, name, limit, note);
  const rowsOf = make("div"), more = make("button", {type: "button", class: "more quiet"});
  /** @type {Policy} */
  const p = {root: make("div", {class: "policy"}, title, rowsOf, more), name, limit, note, title, rows: rowsOf, views: new Map(), more, all: false, order: new Map(), sorted: 0};
  more.addEventListener("click", () => {
    p.all = !p.all;
    showBudgets();
  });
  return p;
}

/**
 * Sorts budgets of one policy: those that are closed first, then those that hold requests, then those used most. The order
 * stays for a while, so that rows do not jump.
 * @param {Policy} p
 * @param {Item[]} items
 */
function sortKeys(p, items) {
  const weight = (/** @type {Budget} */ b) => (isClosed(b) ? 2 : holds(b) ? 1 : 0);
  if (now() - p.sorted > orderStays || items.some((i) => !p.order.has(i.id))) {
    p.sorted = now();
    const sorted = [...items].sort((x, y) => weight(y.b) - weight(x.b) || y.b.starts - x.b.starts || fullness(y.b) - fullness(x.b) || (x.id < y.id ? -1 : 1));
    p.order = new Map(sorted.map((i, n) => [i.id, n]));
  }
  return [...items].sort((x, y) => (p.order.get(x.id) ?? 0) - (p.order.get(y.id) ?? 0));
}

/**
 * @param {Policy} p
 * @param {[string, Item[]]} entry
 */
function updatePolicy(p, [name, items]) {
  const several = items.length > 1;
  p.title.hidden = !several;
  say(p.name, name);
  say(p.limit, items[0].b.limits.join(" / "));
  say(p.note, word(items.some((i) => i.b.kind !== "unlimited") ? "keys" : "keys open", {n: count(items.length)}));
  const sorted = sortKeys(p, items);
  const few = several && items.every((i) => i.b.kind === "unlimited") ? 0 : fewKeys; // what has no number is of interest only while it is closed
  const shown = p.all ? sorted : sorted.filter((i, n) => n < few || p.views.get(i.id)?.details || isClosed(i.b));
  keep(p.rows, p.views, shown, (i) => i.id, createRow, (row, i) => updateRow(row, i.b, several));
  p.more.hidden = items.length <= few || (!p.all && shown.length === items.length);
  say(p.more, p.all ? word("fewer keys") : word(shown.length ? "more keys" : "show keys", {n: count(items.length - shown.length)}));
}

/**
 * @param {Item} item
 * @returns {Row}
 */
function createRow({id}) {
  const name = make("b"), key = make("span", {class: "mono note"}), limit = make("span", {class: "note"}), tag = make("span", {class: "tag"});
  const use = make("span"), bar = draw("svg", {class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true"});
  const small = draw("svg", {class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true"});
  const starts = make("span"), waiting = make("span"), next = make("span");
  const cell = (/** @type {string} */ label, /** @type {HTMLElement} */ value) => make("span", {class: "cell"}, value, make("small", {}, label));
  const row = make("button", {type: "button", class: "row", "aria-expanded": "false"},
    make("span", {class: "name"}, name, key, limit, tag), make("span", {class: "use"}, use, bar), small,
    cell(word("starts"), starts), cell(word("waiting"), waiting), cell(word("next"), next), make("span", {class: "chevron", "aria-hidden": "true"}));
  /** @type {Row} */
  const view = {root: make("div", {}, row), id, row, name, key, limit, tag, use, bar, spark: small, starts, waiting, next, details: null};
  row.addEventListener("click", () => toggle(view));
  return view;
}

/** Opens the details of a row, or closes them. @param {Row} view */
function toggle(view) {
  if (view.details) {
    view.details.root.remove();
    view.details = null;
  } else {
    view.details = makeDetails(view.id);
    view.root.append(view.details.root);
    showDetails(view.details);
  }
  put(view.row, "aria-expanded", view.details ? "true" : "false");
  history.replaceState(null, "", view.details ? "#" + encodeURIComponent(view.id) : location.pathname + location.search);
}

/** Opens the budget that the address names. */
export function openNamed() {
  const id = Object.keys(known.state?.budgets ?? {}).find((id) => "#" + encodeURIComponent(id) === location.hash);
  if (!id || !known.state) return;
  const b = known.state.budgets[id];
  const policy = hosts.get(b.group)?.views.get(b.policy);
  if (policy && !policy.views.has(id)) {
    policy.all = true;
    showBudgets();
  }
  const view = policy?.views.get(id);
  if (!view) return;
  if (!view.details) toggle(view);
  view.row.focus();
  view.root.scrollIntoView({block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth"});
}

/**
 * @param {Row} v
 * @param {Budget} b
 * @param {boolean} several the policy has several budgets
 */
function updateRow(v, b, several) {
  const numbered = b.capacity > 0 && b.kind !== "spaced";
  v.name.hidden = several;
  say(v.name, b.policy);
  v.key.hidden = !several;
  say(v.key, b.key + (b.node ? ` @${b.node.slice(0, 6)}` : ""));
  v.limit.hidden = several;
  say(v.limit, b.limits.join(" / "));
  v.tag.hidden = !b.shadow && !isClosed(b);
  say(v.tag, word(b.shadow ? "only counts" : "closed"));
  put(v.tag, "class", isClosed(b) && !b.shadow ? "tag red" : "tag");
  say(v.use, b.error ? b.error : !numbered ? word(b.kind === "spaced" ? "spaced" : "no number")
    : word(b.kind === "flight" ? "in flight of" : "used of", {used: count(b.used), capacity: count(b.capacity)}));
  drawBar(v.bar, b, numbered);
  const points = known.points.get(v.id) ?? noPoints();
  const from = now() - sparkTime, first = firstSince(points.at, from);
  const values = numbered ? points.used : points.starts;
  if (v.spark.getBoundingClientRect().width > 0) {
    spark(v.spark, {at: points.at.slice(first), values: values.slice(first), top: numbered ? b.capacity : Math.max(1, ...values.slice(first)), bands: b.bands ?? [], from, to: now()});
  }
  say(v.starts, b.starts < 0 ? "–" : number(b.starts));
  say(v.waiting, count(b.waiting ?? 0));
  put(v.waiting, "class", holds(b) ? "warn" : "");
  say(v.next, nextStart(b));
  put(v.next, "class", isClosed(b) ? "alarm" : "");
  if (v.details) showDetails(v.details);
}

/**
 * Draws which share of its limit a budget has used, and which is booked.
 * @param {SVGElement} bar
 * @param {Budget} b
 * @param {boolean} numbered
 */
function drawBar(bar, b, numbered) {
  put(bar, "visibility", numbered ? null : "hidden");
  if (!numbered) return;
  const used = Math.min(100, b.used / b.capacity * 100), booked = Math.min(100 - used, (b.booked ?? 0) / b.capacity * 100);
  put(bar, "class", used >= 100 ? "bar full" : "bar");
  const parts = [
    draw("rect", {class: "used", x: 0, y: 0, width: used.toFixed(1), height: 8}),
    draw("rect", {class: "booked", x: used.toFixed(1), y: 0, width: booked.toFixed(1), height: 8}),
  ];
  if (b.ceiling) {
    const at = Math.min(100, b.ceiling / b.capacity * 100).toFixed(1);
    parts.push(draw("line", {class: "ceiling", x1: at, x2: at, y1: 0, y2: 8}));
  }
  bar.replaceChildren(...parts);
}
