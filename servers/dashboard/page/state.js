// The state of a budget, in words that several parts of the page share.

import {isFresh, known, now} from "./stream.js";
import {clause, clock, count, seconds, span, word} from "./words.js";

/** @typedef {import("./stream.js").Budget} Budget */

/** The used part of a budget's limit, at most 1 even if a store counts more. @param {Budget} b */
export const fullness = (b) => (b.capacity > 0 && b.kind !== "spaced" ? Math.min(1, b.used / b.capacity) : 0);

/** Whether a budget is closed now. @param {Budget} b */
export const isClosed = (b) => (b.until ?? 0) > now();

/** How long a budget stays closed, at least a second for a closed budget. @param {Budget} b */
export const closedFor = (b) => Math.ceil(((b.until ?? 0) - now()) / 1000) * 1000;

/**
 * Whether requests wait for room in this budget. With room here, a different budget holds them. The wait for a slot is 0,
 * because nobody knows when a request ends.
 * @param {Budget} b
 */
export const holds = (b) => !b.shadow && (b.waiting ?? 0) > 0 && (b.wait !== 0 || b.kind === "flight");

/** The urgency of a budget: 3 if closed, 2 if it holds requests, 1 if in use, 0 if idle. @param {Budget} b */
export const weight = (b) => (isClosed(b) && !b.shadow ? 3 : holds(b) ? 2 : b.starts > 0 || b.used > 0 || b.shadow ? 1 : 0);

/** The number of keys of each policy. @type {Map<string, number>} */
let keys = new Map();

/** Counts the keys of each policy, once for each drawing of the page. */
export function countKeys() {
  keys = new Map();
  for (const b of Object.values(known.state?.budgets ?? {})) keys.set(b.policy, (keys.get(b.policy) ?? 0) + 1);
}

/** Whether the policy of a budget has several keys. @param {Budget} b */
export const hasKeys = (b) => (keys.get(b.policy) ?? 0) > 1;

/** The name of a budget. It has the key only if the policy has several keys, or if the key has a label. @param {Budget} b */
export const nameOf = (b) => (b.label || hasKeys(b) ? `${b.policy}/${b.label || b.key.slice(0, 8)}` : b.policy);

/** The key of a budget in its row, behind its label: as nameOf. @param {Budget} b */
export const keyWords = (b) => (b.label ? `${b.label} ` : "") + (hasKeys(b) || b.node ? b.key : "") + (b.node ? ` @${b.node.slice(0, 6)}` : "");

/** Who closed a budget, and why. @param {Budget} b */
export function closedBy(b) {
  if (b.by) return b.reason ? word("by reason", {by: b.by, reason: b.reason}) : word("by", {by: b.by});
  if (b.closer === "program") return b.met ? word("by program named", {program: b.met}) : word("by program");
  if (b.closer !== "answer" && b.met) return word("met closed", {program: b.met});
  const by = b.met ? word("by answer met", {program: b.met}) : word("by answer");
  return b.repeated ? `${by}; ${word("again", {n: b.repeated})}` : by;
}

/**
 * Since when a budget is closed, and when it opens. Moments stay true without new data. Lengths are added only while the
 * page is fresh.
 * @param {Budget} b
 */
export function closedSpan(b) {
  const band = b.bands?.at(-1);
  const since = band && band.until > now() ? word(band.before ? "since least" : "since", {time: clock(band.from)}) : "";
  const long = since && isFresh() && band ? ` (${seconds(now() - band.from)})` : "";
  return [since + long, word("opens at", {time: clock(b.until ?? 0)})].filter(Boolean).join(" · ");
}

/** When the next request could start. @param {Budget} b */
export function nextStart(b) {
  if (isClosed(b)) return isFresh() ? word("in", {time: seconds(closedFor(b))}) : word("at", {time: clock(b.until ?? 0)});
  if (b.wait < 0) return word(b.kind === "flight" ? "ends" : "unplanned");
  if (b.wait === 0) return b.kind === "flight" && b.capacity > 0 && b.used >= b.capacity ? word("ends") : word("now");
  return word("in", {time: span(b.wait)});
}

/** The number of requests that wait for a budget, and the wait of the oldest request. @param {Budget} b */
export function waitingWords(b) {
  const n = b.waiting ?? 0;
  if (n === 0) return "";
  const waits = word(n === 1 ? "waits one" : "waits many", {n: count(n)});
  return b.oldest ? waits + clause + oldestWords(b.oldest) : waits;
}

/** How long the oldest request has waited or, without new data, since when. @param {number} at */
export const oldestWords = (at) => (isFresh() ? word("oldest", {time: seconds(now() - at)}) : word("oldest since", {time: clock(at)}));
