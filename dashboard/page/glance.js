// The page at a glance: what is closed, who waits, how full the budgets are.

import {byId, keep, make, put, say} from "./dom.js";
import {closedBy, closedFor, fullness, holds, isClosed, nameOf} from "./state.js";
import {known, now} from "./stream.js";
import {clock, count, number, page, percent, seconds, word} from "./words.js";

/** @typedef {import("./stream.js").Budget} Budget */
/** @typedef {{root: HTMLElement, link: HTMLElement, count: HTMLElement, more: HTMLElement, why: HTMLElement}} View */

const mostClosed = 6, mostWaiting = 4;

/** @type {Map<string, View>} */
const views = new Map();

/** @type {(a: [string, Budget], b: [string, Budget]) => number} */
const mostWaitingFirst = ([, a], [, b]) => (b.waiting ?? 0) - (a.waiting ?? 0) || (b.until ?? 0) - (a.until ?? 0);

/** Shows the state at a glance. */
export function showGlance() {
  const s = known.state;
  if (!s) return;
  const all = Object.entries(s.budgets);
  const closed = all.filter(([, b]) => isClosed(b) && !b.shadow).sort(mostWaitingFirst);
  const waiting = all.filter(([, b]) => !isClosed(b) && holds(b)).sort(mostWaitingFirst);
  put(byId("glance"), "data-state", s.failed || known.live === "lost" ? "stale" : closed.length ? "closed" : waiting.length ? "waits" : "calm");
  say(byId("verdict"), verdict(closed.map(([, b]) => b), waiting.length, all.length));
  say(byId("subline"), subline(closed.length, waiting.length, all.map(([, b]) => b)));
  keep(byId("trouble"), views, [...closed.slice(0, mostClosed), ...waiting.slice(0, mostWaiting)], ([id]) => id, create, update);
  showFigures(all.map(([, b]) => b).filter((b) => !b.shadow));
}

/**
 * The sentence that says it all. It has no number that changes each second, because readers of screens say it aloud.
 * @param {Budget[]} closed
 * @param {number} waiting
 * @param {number} all
 */
function verdict(closed, waiting, all) {
  if (known.live === "lost") return word("page lost");
  if (known.state?.failed) return word("unreadable");
  if (all === 0) return word("nobody");
  if (closed.length > 1) return word("closed many", {n: closed.length});
  if (closed.length === 1) return word("closed one", {name: nameOf(closed[0])});
  return word(waiting > 0 ? "calm waits" : "calm");
}

/**
 * What stands below the verdict.
 * @param {number} closed
 * @param {number} waiting
 * @param {Budget[]} all
 */
function subline(closed, waiting, all) {
  const s = known.state;
  if (s && known.live === "lost") return word("unreadable note", {time: clock(s.at), why: ""});
  if (s?.failed) return word(all.length ? "unreadable note" : "unreadable yet", {time: clock(s.failedAt ?? s.at), why: s.failed});
  if (all.length === 0) return word("nobody note");
  const hidden = [];
  if (closed > mostClosed) hidden.push(word("more closed", {n: closed - mostClosed}));
  if (waiting > mostWaiting) hidden.push(word("more waits", {n: waiting - mostWaiting}));
  if (closed + waiting > 0) return hidden.join("; ");
  return word("nobody waits");
}

/** @returns {View} */
function create() {
  const link = make("a"), number = make("span", {class: "count"}), more = make("span", {class: "note"}), why = make("p", {class: "note"});
  return {root: make("li", {}, make("div", {class: "head"}, link, number, more), why), link, count: number, more, why};
}

/**
 * @param {View} v
 * @param {[string, Budget]} entry
 */
function update(v, [id, b]) {
  const waits = (b.waiting ?? 0) > 0 ? word("wait for", {n: count(b.waiting ?? 0)}) : "";
  put(v.root, "data-kind", isClosed(b) ? "closed" : "waits");
  put(v.link, "href", "#" + encodeURIComponent(id));
  say(v.link, nameOf(b));
  if (isClosed(b)) {
    const band = b.bands?.at(-1);
    say(v.count, word("opens", {time: seconds(closedFor(b))}));
    say(v.more, [waits, band ? word(band.before ? "closed for least" : "closed for", {time: seconds(now() - band.from)}) : ""].filter(Boolean).join(" · "));
    say(v.why, closedBy(b));
  } else {
    say(v.count, waits);
    say(v.more, b.limits.join(" / "));
    say(v.why, b.why ? b.why[page.language === "zh" ? "zh" : "en"] : "");
  }
}

/** @param {Budget[]} all */
function showFigures(all) {
  const s = known.state;
  const programs = Object.values(s?.nodes ?? {});
  const waiting = all.reduce((sum, b) => sum + (holds(b) || isClosed(b) ? b.waiting ?? 0 : 0), 0);
  const full = all.reduce((/** @type {Budget | null} */ most, b) => (!most || fullness(b) > fullness(most) ? b : most), null);
  const starts = programs.filter((n) => !n.silent && n.starts >= 0);
  say(byId("f-starts"), starts.length ? number(starts.reduce((sum, n) => sum + n.starts, 0)) : "–");
  say(byId("f-waiting"), count(waiting));
  put(byId("f-waiting"), "class", waiting > 0 ? "warn" : "");
  say(byId("f-fullest"), full && full.capacity > 0 ? percent(fullness(full)) : "–");
  put(byId("f-fullest"), "title", full ? nameOf(full) : "");
  say(byId("f-programs"), count(programs.filter((n) => !n.silent).length + (s?.nodesLeftOut ?? 0)));
}
