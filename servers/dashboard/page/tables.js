// The tables of programs and of the acts of operators.

import {byId, keep, make, put, say} from "./dom.js";
import {known, now} from "./stream.js";
import {count, day, number, seconds, span, word} from "./words.js";

/**
 * @typedef {import("./stream.js").Program} Program
 * @typedef {import("./stream.js").Act} Act
 * @typedef {{root: HTMLElement, cells: HTMLElement[]}} Line
 */

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** @type {Map<string, Line>} */
const programs = new Map();
/** @type {Map<string, Line>} */
const acts = new Map();

/**
 * A line of a table with cells of these classes.
 * @param {string[]} classes
 * @returns {Line}
 */
function line(classes) {
  const cells = classes.map((c) => make("td", c ? {class: c} : {}));
  return {root: make("tr", {}, ...cells), cells};
}

/**
 * @param {string} table
 * @returns {HTMLElement}
 */
const bodyOf = (table) => /** @type {HTMLElement} */ (byId(table).querySelector("tbody"));

/** Shows the programs, silent ones first, the pushed file, and what the table leaves out. */
export function showPrograms() {
  const s = known.state;
  if (!s) return;
  const sorted = Object.values(s.nodes).sort((a, b) => Number(b.silent ?? false) - Number(a.silent ?? false) || (a.program + a.host + a.id < b.program + b.host + b.id ? -1 : 1));
  keep(bodyOf("nodes"), programs, sorted, (n) => n.id, () => line(["", "", "", "", "n", "n", "wide"]), (l, n) => {
    const heard = now() - n.heard;
    const words = [
      n.heard ? `${n.program}/${n.id.slice(0, 6)}` : n.program, `${n.host} · ${n.pid}`, seconds(now() - n.since),
      n.heard === 0 ? word("this program") : n.silent ? word("silent", {time: seconds(heard)}) : word("ago", {time: seconds(heard)}),
      n.starts < 0 || n.silent ? "–" : number(n.starts), count(n.budgets), policiesOf(n),
    ];
    words.forEach((text, i) => say(l.cells[i], text));
    put(l.cells[3], "class", n.silent ? "alarm" : "");
    put(l.cells[6], "class", n.refused ? "wide alarm" : "wide");
  });
  note("file", s.file && word("pushed", {n: s.file.number, generation: s.file.generation, by: s.file.by, time: seconds(now() - s.file.at)}) + (s.file.reason ? `: ${s.file.reason}` : ""));
  const missing = [];
  if (s.nodesLeftOut) missing.push(word("nodes left out", {n: count(s.nodesLeftOut)}));
  if (s.illegible) missing.push(word("illegible", {n: count(s.illegible)}));
  note("nodes-left-out", missing.join(" "));
  note("source", s.kind && [word("source " + s.kind), s.kind === "fleet" ? word("waits unknown") : "", word("zone", {zone})].filter(Boolean).join(" "));
}

/**
 * The generation of policies that a program has in force, and why a newer one is not. The pushed file has a number.
 * @param {Program} n
 */
function policiesOf(n) {
  if (!n.inForce) return word("its own");
  const file = known.state?.file;
  const named = (/** @type {string} */ generation) => (file && generation === file.generation ? word("number", {n: file.number}) : generation);
  const words = [n.follows ? named(n.inForce) : word("a file", {generation: named(n.inForce)})];
  if (n.refused && !n.seen) words.push(word("cannot read", {why: n.refused}));
  else if (n.refused) words.push(word("refuses", {generation: named(n.seen), why: n.refused}));
  else if (n.seen && n.waits) words.push(word("waits until", {generation: named(n.seen), time: seconds(n.waits - now())}));
  else if (n.seen) words.push(word("has seen", {generation: named(n.seen)}));
  return words.join("; ");
}

/** Shows the acts of operators. */
export function showActs() {
  const all = known.state?.acts ?? [];
  byId("no-acts").hidden = all.length > 0;
  byId("acts").hidden = all.length === 0;
  keep(bodyOf("acts"), acts, all, (a) => `${a.at} ${a.act} ${a.what}`, () => line(["", "", "", "", "wide"]), (l, a) => {
    const did = [word("do " + a.act) === "do " + a.act ? a.act : word("do " + a.act)];
    if (a.for) did.push(span(a.for));
    if (a.failed) did.push(word("failed"));
    [day(a.at), a.by, did.join(", "), a.what, a.reason ?? ""].forEach((text, i) => say(l.cells[i], text));
  });
}

/**
 * Shows a note, or hides it if there is nothing to say.
 * @param {string} id
 * @param {string | undefined} text
 */
function note(id, text) {
  say(byId(id), text ?? "");
  byId(id).hidden = !text;
}
