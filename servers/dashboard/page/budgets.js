// The table of budgets: closed budgets first, then budgets that hold requests, each with its story. A row opens its details.

import {byId, draw, keep, make, put, say} from "./dom.js";
import {firstSince, spark} from "./chart.js";
import {makeDetails, showDetails} from "./details.js";
import {fullness, holds, isClosed, keyWords, nextStart, weight} from "./state.js";
import {makeStory, showStory} from "./story.js";
import {known, noPoints, now} from "./stream.js";
import {count, limitWords, number, word} from "./words.js";

/**
 * @typedef {import("./stream.js").Budget} Budget
 * @typedef {{id: string, b: Budget, weight: number, text: string}} Item
 * @typedef {{root: HTMLElement, id: string, seen: boolean, row: HTMLElement, name: HTMLElement, key: HTMLElement, limit: HTMLElement,
 *   tag: HTMLElement, use: HTMLElement, bar: SVGElement, drawn: string, spark: SVGElement, starts: HTMLElement, waiting: HTMLElement,
 *   next: HTMLElement, story: import("./story.js").Story | null, details: import("./details.js").Details | null}} Row
 * @typedef {{root: HTMLElement, button: HTMLElement}} Other
 * @typedef {{kind: "row", key: string, item: Item, story: boolean} | {kind: "group" | "more", key: string, text: string, act?: () => void}} Line
 */

/** How many keys of a policy, how many stories and how many rows are shown at first, and how long the order stays, in milliseconds. */
const fewKeys = 5, fewStories = 8, fewRows = 200, orderStays = 10e3;

/** How much time a small chart shows, in milliseconds. */
const sparkTime = 120e3;

/** @type {Map<string, Row | Other>} */
const views = new Map();
/** @type {Map<Element, Row>} */
const rows = new Map();

/** What the viewer wants to see. */
const wanted = {
  /** @type {string[]} */ words: [],
  /** @type {Set<string>} */ ids: new Set(), // budgets of the key that the viewer looks for
  sort: "state",
  /** @type {Set<string>} */ open: new Set(), // policies and groups whose rows are all shown
};

/** @type {{at: number, marks: string, place: Map<string, number>}} */
let order = {at: 0, marks: "", place: new Map()};

/** Draws the charts of rows only while the rows are in view. The browser reports which rows are. */
const sight = new IntersectionObserver((entries) => {
  for (const e of entries) {
    const row = rows.get(e.target);
    const b = row && known.state?.budgets[row.id];
    if (!row || !b) continue;
    row.seen = e.isIntersecting;
    if (row.seen) drawRow(row, b);
  }
}, {rootMargin: "300px"});

/** Shows all budgets. */
export function showBudgets() {
  const s = known.state;
  if (!s) return;
  const items = Object.entries(s.budgets).map(([id, b]) => ({id, b, weight: weight(b), text: ""}));
  const shown = sorted(items.filter(isWanted));
  say(byId("found"), wanted.words.length ? word("found", {n: count(shown.length), all: count(items.length)}) : "");
  byId("head").hidden = items.length === 0;

  // Budgets in trouble stand above the groups, so that nobody has to search for them.
  const troubled = shown.filter((i) => i.weight > 1);
  const rest = shown.filter((i) => i.weight <= 1);
  const first = troubled.map((item, n) => ({kind: /** @type {const} */ ("row"), key: item.id, item, story: n < fewStories}));
  const lines = [...first, {kind: /** @type {const} */ ("group"), key: "\nrest", text: ""}, ...linesOf(rest)];
  keep(byId("rows"), views, lines, (l) => l.key, create, update);

  say(byId("left-out"), word("left out", {n: count(s.budgetsLeftOut ?? 0)}));
  byId("left-out").hidden = !s.budgetsLeftOut;
}

/** Whether a viewer wants to see a budget. @param {Item} i */
function isWanted(i) {
  if (wanted.words.length === 0 || wanted.ids.has(i.id)) return true;
  const b = i.b;
  const text = [b.policy, b.key, b.label, b.group, b.limits.join(" "), b.by, b.reason, b.met, isClosed(b) ? word("closed") : "", ...(b.programs ?? []).map((p) => p.program)].join(" ").toLowerCase();
  return wanted.words.every((w) => text.includes(w));
}

/** The orders of budgets, by the name of the column. @type {Record<string, (a: Budget, b: Budget) => number>} */
const sorts = {
  state: (a, b) => compare(a.group, b.group) || Number(a.kind === "unlimited") - Number(b.kind === "unlimited") || compare(a.policy, b.policy) || b.starts - a.starts || fullness(b) - fullness(a),
  name: (a, b) => compare(a.policy, b.policy) || compare(a.key, b.key),
  used: (a, b) => fullness(b) - fullness(a),
  starts: (a, b) => b.starts - a.starts,
  waiting: (a, b) => (b.waiting ?? 0) - (a.waiting ?? 0),
};

/** @type {(a: string, b: string) => number} */
const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/**
 * Sorts budgets: closed budgets first, then budgets that hold requests, then the rest in the order that the viewer chose. The
 * order stays for a while, so that rows do not jump. It changes at once if a budget closes, opens or appears.
 * @param {Item[]} items
 */
function sorted(items) {
  const marks = wanted.sort + items.map((i) => `${i.id} ${i.weight > 1 ? i.weight : 0}`).join("\n");
  // Sort again when the order is old, when the clock went back, or when a budget closed, opened or appeared.
  if (now() - order.at > orderStays || now() < order.at || marks !== order.marks) {
    // In the order of states, the troubled budget with the most waiting requests comes first.
    const by = sorts[wanted.sort], waiting = (/** @type {Item} */ i) => (wanted.sort === "state" && i.weight > 1 ? i.b.waiting ?? 0 : 0);
    const all = [...items].sort((x, y) => (x.weight > 1 || y.weight > 1 ? y.weight - x.weight : 0) || waiting(y) - waiting(x) || by(x.b, y.b) || compare(x.id, y.id));
    order = {at: now(), marks, place: new Map(all.map((i, n) => [i.id, n]))};
  }
  return [...items].sort((x, y) => (order.place.get(x.id) ?? 0) - (order.place.get(y.id) ?? 0));
}

/**
 * Returns the lines of budgets that are open and hold no requests. Unless the viewer searches, the lines stand below the name of
 * their upstream, with a few keys of each policy. Budgets without a limit are shown only on request.
 * @param {Item[]} rest
 * @returns {Line[]}
 */
function linesOf(rest) {
  /** @type {Line[]} */
  const lines = [];
  const row = (/** @type {Item} */ item) => lines.push({kind: "row", key: item.id, item, story: false});
  // A button that shows all n hidden rows of a key, or hides them again.
  const more = (/** @type {string} */ key, /** @type {string} */ name, /** @type {number} */ n) =>
    lines.push({kind: "more", key: "\nmore " + key, text: wanted.open.has(key) ? word("fewer", {name}) : word("more keys", {name, n: count(n)}), act: () => toggleOpen(key)});

  // Groups make sense only in the order of policies.
  if (wanted.words.length || wanted.sort !== "state") {
    const most = wanted.open.has("\nall") ? rest.length : fewRows;
    rest.slice(0, most).forEach(row);
    if (rest.length > most) more("\nall", word("budgets"), rest.length - most);
    return lines;
  }

  let done = 0; // budgets whose policies have their lines, even if some keys are hidden
  const isFull = () => done >= fewRows && !wanted.open.has("\nall");
  for (const group of runs(rest, (i) => i.b.group)) {
    const name = group[0].b.group;
    if (isFull()) break;
    lines.push({kind: "group", key: "\ngroup " + name, text: name === "*" || name === "" ? word("every host") : name});
    for (const policy of runs(group, (i) => i.b.policy)) {
      if (isFull()) break;
      const {policy: policyName, kind} = policy[0].b, key = name + "\n" + policyName;
      const few = kind === "unlimited" ? 0 : fewKeys;
      const shown = wanted.open.has(key) ? policy : policy.filter((i, n) => n < few || isOpen(i.id));
      shown.forEach(row);
      done += policy.length;
      if (policy.length > few) more(key, policyName, policy.length - shown.length);
    }
  }
  if (isFull() && rest.length > done) more("\nall", word("budgets"), rest.length - done);
  else if (rest.length > fewRows) more("\nall", word("budgets"), 0);
  return lines;
}

/** Whether the details of a budget are open. @param {string} id */
const isOpen = (id) => Boolean(/** @type {Row | undefined} */ (views.get(id))?.details);

/**
 * Splits a list into runs of items with the same value.
 * @param {Item[]} list
 * @param {(item: Item) => string} of
 */
function runs(list, of) {
  /** @type {Item[][]} */
  const all = [];
  for (const i of list) {
    const last = all.at(-1);
    if (last && of(last[0]) === of(i)) last.push(i);
    else all.push([i]);
  }
  return all;
}

/** Switches between all rows of a policy and a few. @param {string} key */
function toggleOpen(key) {
  if (!wanted.open.delete(key)) wanted.open.add(key);
  showBudgets();
}

/** Makes the view of a line: a row, a heading, or a button. @param {Line} l @returns {Row | Other} */
function create(l) {
  if (l.kind === "row") return createRow(l.item.id);
  const button = make(l.kind === "more" ? "button" : "h3", l.kind === "more" ? {type: "button", class: "more quiet"} : {class: "group note"});
  if (l.act) button.addEventListener("click", l.act);
  return {root: button, button};
}

/**
 * Shows a line in its view.
 * @param {Row | Other} v
 * @param {Line} l
 */
function update(v, l) {
  if (l.kind === "row") return updateRow(/** @type {Row} */ (v), l.item, l.story);
  say(v.root, l.text);
  put(v.root, "hidden", l.text ? null : "");
}

/**
 * Makes the row of a budget, without its story and details.
 * @param {string} id
 * @returns {Row}
 */
function createRow(id) {
  const name = make("b"), key = make("span", {class: "mono note"}), limit = make("span", {class: "note"}), tag = make("span", {class: "tag"});
  const use = make("span"), bar = draw("svg", {class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true"});
  const small = draw("svg", {class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true"});
  const starts = make("span"), waiting = make("span"), next = make("span");
  const cell = (/** @type {string} */ label, /** @type {HTMLElement} */ value) => make("span", {class: "cell"}, value, make("small", {}, label));
  const row = make("button", {type: "button", class: "row", "aria-expanded": "false"},
    make("span", {class: "name"}, name, key, limit, tag), make("span", {class: "use"}, use, bar), small,
    cell(word("starts"), starts), cell(word("waiting"), waiting), cell(word("next"), next), make("span", {class: "chevron", "aria-hidden": "true"}));
  /** @type {Row} */
  const view = {root: make("div", {class: "line"}, row), id, seen: false, row, name, key, limit, tag, use, bar, drawn: "", spark: small, starts, waiting, next, story: null, details: null};
  row.addEventListener("click", () => toggle(view));
  rows.set(view.root, view);
  sight.observe(view.root);
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
  // Name the open budget in the address, so that a copied link opens it.
  history.replaceState(null, "", view.details ? "#" + encodeURIComponent(view.id) : location.pathname + location.search);
}

/** Opens the budget that the address names. */
export function openNamed() {
  const id = Object.keys(known.state?.budgets ?? {}).find((id) => "#" + encodeURIComponent(id) === location.hash);
  const b = id && known.state?.budgets[id];
  if (!id || !b) return;
  // The row may be hidden behind "more": open its policy first.
  if (!views.has(id)) {
    wanted.open.add(b.group + "\n" + b.policy).add("\nall");
    showBudgets();
  }
  const view = /** @type {Row | undefined} */ (views.get(id));
  if (!view) return;
  if (!view.details) toggle(view);
  view.row.focus();
  view.root.scrollIntoView({block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth"});
}

/**
 * Shows a budget in its row, with its details if they are open.
 * @param {Row} v
 * @param {Item} item
 * @param {boolean} story whether the row has the story of the budget
 */
function updateRow(v, {b, weight}, story) {
  put(v.root, "data-kind", weight === 3 ? "closed" : weight === 2 ? "waits" : null);
  say(v.name, b.policy);
  say(v.key, keyWords(b));
  say(v.limit, b.limits.map(limitWords).join(" / "));
  v.tag.hidden = !b.shadow && !isClosed(b);
  say(v.tag, word(b.shadow ? "only counts" : "closed"));
  put(v.tag, "class", isClosed(b) && !b.shadow ? "tag red" : "tag");
  say(v.use, b.error ? b.error : !isNumbered(b) ? (b.kind === "spaced" ? word("spaced") : "")
    : word(b.kind === "flight" ? "in flight of" : "used of", {used: count(b.used), capacity: count(b.capacity)}));
  say(v.starts, b.starts < 0 ? "–" : number(b.starts));
  say(v.waiting, count(b.waiting ?? 0));
  put(v.waiting, "class", holds(b) ? "warn" : null);
  say(v.next, nextStart(b));
  put(v.next, "class", isClosed(b) ? "alarm" : null);

  if (story && !v.story) v.row.after((v.story = makeStory(v.id)).root);
  if (!story && v.story) {
    v.story.root.remove();
    v.story = null;
  }
  if (v.story) showStory(v.story, b);
  if (v.seen) drawRow(v, b);
  if (v.details) showDetails(v.details);
}

/** Whether the use of a budget is a number that its limit bounds. @param {Budget} b */
const isNumbered = (b) => b.capacity > 0 && b.kind !== "spaced";

/**
 * Draws the bar and the small chart of a row that is in view.
 * @param {Row} v
 * @param {Budget} b
 */
function drawRow(v, b) {
  drawBar(v, b);
  const points = known.points.get(v.id) ?? noPoints();
  const from = now() - sparkTime, first = firstSince(points.at, from);
  const values = (isNumbered(b) ? points.used : points.starts).slice(first);
  spark(v.spark, {at: points.at.slice(first), values, top: isNumbered(b) ? b.capacity : Math.max(1, ...values), bands: b.bands ?? [], from, to: now()});
}

/**
 * Draws the used and the booked part of a budget's limit, unless the bar shows these numbers already.
 * @param {Row} v
 * @param {Budget} b
 */
function drawBar(v, b) {
  const marks = isNumbered(b) ? `${b.used} ${b.booked ?? 0} ${b.capacity} ${b.ceiling ?? 0}` : "none";
  // Most readings change nothing: leave the bar as it is.
  if (marks === v.drawn) return;
  v.drawn = marks;
  put(v.bar, "visibility", isNumbered(b) ? null : "hidden");
  if (!isNumbered(b)) return;

  const used = Math.min(100, b.used / b.capacity * 100), booked = Math.min(100 - used, (b.booked ?? 0) / b.capacity * 100);
  put(v.bar, "class", used >= 100 ? "bar full" : "bar");
  const parts = [
    draw("rect", {class: "used", x: 0, y: 0, width: used.toFixed(1), height: 8}),
    draw("rect", {class: "booked", x: used.toFixed(1), y: 0, width: booked.toFixed(1), height: 8}),
  ];
  if (b.ceiling) {
    const at = Math.min(100, b.ceiling / b.capacity * 100).toFixed(1);
    parts.push(draw("line", {class: "ceiling", x1: at, x2: at, y1: 0, y2: 8}));
  }
  v.bar.replaceChildren(...parts);
}

/** Adds the listeners of the search field and of the head of the table. */
export function wireBudgets() {
  const find = /** @type {HTMLInputElement} */ (byId("find"));
  find.addEventListener("input", () => {
    wanted.words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    wanted.ids = new Set();
    say(byId("find-note"), "");
    showBudgets();
  });
  find.addEventListener("keydown", async (e) => {
    if (e.key === "Escape" && find.value) {
      find.value = "";
      find.dispatchEvent(new Event("input"));
    } else if (e.key === "Enter" && find.value) {
      await findKey(find.value);
    }
  });
  addEventListener("keydown", (e) => {
    const typing = e.target instanceof HTMLInputElement || document.querySelector("dialog[open]");
    if (e.key !== "/" || typing || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    find.focus();
    find.select();
  });
  for (const b of byId("head").querySelectorAll("button")) {
    b.addEventListener("click", () => {
      wanted.sort = wanted.sort === b.dataset.sort ? "state" : b.dataset.sort ?? "state";
      for (const other of byId("head").querySelectorAll("button")) put(other, "aria-pressed", String(other.dataset.sort === wanted.sort));
      showBudgets();
    });
  }
}

/** Asks the server for the budgets of a key. The key is sent in the body, so that no access log has it. @param {string} key */
async function findKey(key) {
  const ask = {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({key})};
  const found = await fetch("find", ask).then((r) => (r.ok ? r.json() : null)).catch(() => null);
  wanted.ids = new Set(found?.budgets ?? []);
  say(byId("find-note"), wanted.ids.size ? word("key found", {n: count(wanted.ids.size)}) : word("key unknown"));
  showBudgets();
}
