// The page at a glance: whether throttle is off, closed budgets, waiting requests, the fullest budget, and silent programs.

import {byId, put, say} from "./dom.js";
import {fullness, holds, isClosed, nameOf, oldestWords} from "./state.js";
import {isFresh, known, now, standing} from "./stream.js";
import {clause, clock, count, number, percent, seconds, word} from "./words.js";

/** @typedef {import("./stream.js").Budget} Budget */

/**
 * Shows the state at a glance, and returns the worst state: "away", "closed", "waits", "silent", "calm", or "none" without
 * data.
 */
export function showGlance() {
  const s = known.state;
  if (!s) return "none";
  const all = Object.entries(s.budgets).filter(([, b]) => !b.shadow);
  const closed = all.filter(([, b]) => isClosed(b)).map(([, b]) => b);
  const waiting = all.filter(([, b]) => !isClosed(b) && holds(b));
  const closedInAll = closed.length + (s.closedLeftOut ?? 0);
  const programs = Object.values(s.nodes);
  const silent = programs.filter((n) => n.silent), refusing = programs.filter((n) => n.refused), off = programs.filter((n) => n.off);

  const isAway = !isFresh() && standing() !== "hidden";
  const worst = isAway ? "away" : closedInAll || off.length ? "closed" : waiting.length ? "waits" : silent.length || refusing.length ? "silent" : "calm";
  put(byId("glance"), "data-state", worst);
  say(byId("verdict"), verdict(closed, closedInAll, waiting.length, Object.keys(s.budgets).length, silent.length, off.length));
  say(byId("subline"), subline(closed, waiting.map(([, b]) => b), Object.keys(s.budgets).length));
  note("off", off.length ? word("off programs", {n: off.length, names: names(off), why: off[0].off ?? ""}) : "");
  note("silent", silent.length ? word(silent.length === 1 ? "silent one" : "silent many", {n: silent.length, names: names(silent), time: shortestSilence(silent)}) : "");
  note("refusing", refusing.length ? word("refusing", {n: refusing.length, names: names(refusing)}) : "");
  note("wrong-tokens", s.wrongTokens && word("wrong tokens", {n: count(s.wrongTokens.count), time: clock(s.wrongTokens.at), client: s.wrongTokens.client}));
  showFigures(all, closedInAll);
  return worst;
}

/** The names of programs. @param {import("./stream.js").Program[]} all */
const names = (all) => all.slice(0, 3).map((n) => `${n.program}/${n.id.slice(0, 6)}`).join(", ") + (all.length > 3 ? " …" : "");

/** The shortest silence of the silent programs. @param {import("./stream.js").Program[]} all */
const shortestSilence = (all) => seconds(now() - Math.max(...all.map((n) => n.heard)));

/**
 * The summary in one sentence. It has no number that changes each second, because screen readers say it aloud.
 * @param {Budget[]} closed
 * @param {number} closedInAll the number of closed budgets, with those that are not shown
 * @param {number} waiting the number of open budgets that hold requests
 * @param {number} all the number of budgets
 * @param {number} silent the number of silent programs
 * @param {number} off the number of programs in which throttle is off
 */
function verdict(closed, closedInAll, waiting, all, silent, off) {
  if (known.live === "lost") return word("page lost");
  if (known.state?.failed) return word("unreadable");
  if (off > 0) return word("is off");
  if (all === 0) return word("nobody");
  if (closedInAll === 1 && closed.length === 1) return word("closed one", {name: nameOf(closed[0])});
  if (closedInAll) return word("closed many", {n: closedInAll});
  return word(waiting > 0 ? "calm waits" : silent > 0 ? "calm silent" : "calm");
}

/**
 * The line below the verdict: why the data are old, or the closed budgets, or the budgets that hold requests.
 * @param {Budget[]} closed
 * @param {Budget[]} waiting
 * @param {number} all the number of budgets
 */
function subline(closed, waiting, all) {
  const s = known.state;
  if (!s) return "";
  if (known.live === "lost") return word("unreadable note", {time: s.at ? clock(s.at) : "–", why: ""});
  if (s.failed) return word(s.at ? "unreadable note" : "unreadable yet", {time: clock(s.at), why: s.failed});
  if (all === 0) return word("nobody note");
  if (closed.length) return firstOf(closed, (b) => `${nameOf(b)}${clause}${word("opens at", {time: clock(b.until ?? 0)})}`);
  return waiting.length ? firstOf(waiting, nameOf) : word("nobody waits");
}

/**
 * The names of the three budgets with the most waiting requests, and the number of the others.
 * @param {Budget[]} budgets
 * @param {(b: Budget) => string} name
 */
function firstOf(budgets, name) {
  const first = [...budgets].sort((a, b) => (b.waiting ?? 0) - (a.waiting ?? 0)).slice(0, 3).map(name);
  return first.join(" · ") + (budgets.length > first.length ? ` · ${word("more programs", {n: budgets.length - first.length})}` : "");
}

/**
 * Shows the figures: starts, waiting requests, the fullest budget, programs, and closed budgets if there are any.
 * @param {[string, Budget][]} all the budgets by id, without shadow budgets
 * @param {number} closed the number of closed budgets
 */
function showFigures(all, closed) {
  const s = known.state;
  put(byId("figures"), "class", isFresh() ? "figures" : "figures stale");

  const programs = Object.values(s?.nodes ?? {});
  const heard = programs.filter((n) => !n.silent), starts = heard.filter((n) => n.starts >= 0);
  figure("starts", starts.length ? number(starts.reduce((sum, n) => sum + n.starts, 0)) : "–", s?.kind === "fleet" ? word("of reports") : "");

  const held = all.map(([, b]) => b).filter((b) => holds(b) || isClosed(b));
  const waiting = held.reduce((sum, b) => sum + (b.waiting ?? 0), 0);
  const oldest = Math.min(...held.map((b) => (b.waiting && b.oldest) || Infinity));
  figure("waiting", count(waiting), oldest < Infinity ? oldestWords(oldest) : "", waiting > 0 ? "warn" : "");

  /** @type {[string, Budget] | null} */
  let full = null;
  for (const e of all) if (e[1].capacity > 0 && (!full || fullness(e[1]) > fullness(full[1]))) full = e;
  const name = /** @type {HTMLAnchorElement} */ (byId("f-fullest-name"));
  say(byId("f-fullest"), full ? percent(fullness(full[1])) : "–");
  say(name, full ? nameOf(full[1]) : "");
  put(name, "href", full ? "#" + encodeURIComponent(full[0]) : null);

  const left = s?.nodesLeftOut ?? 0, silent = programs.length - heard.length;
  figure("programs", count(heard.length + left), silent ? word("are silent", {n: silent}) : "", silent ? "alarm" : "");
  put(byId("f-closed-box"), "hidden", closed ? null : "");
  figure("closed", count(closed), "", "alarm");
}

/**
 * Shows a figure and its note.
 * @param {string} id
 * @param {string} value
 * @param {string} about
 * @param {string} [kind]
 */
function figure(id, value, about, kind = "") {
  say(byId("f-" + id), value);
  put(byId("f-" + id), "class", kind);
  const small = document.getElementById(`f-${id}-about`);
  if (small) say(small, about);
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
