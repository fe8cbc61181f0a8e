// What a budget is like, in words that several parts of the page need.

import {known, now} from "./stream.js";
import {seconds, span, word} from "./words.js";

/** @typedef {import("./stream.js").Budget} Budget */

/** Which share of its limit a budget has used: all of it, also where a store counts more. @param {Budget} b */
export const fullness = (b) => (b.capacity > 0 && b.kind !== "spaced" ? Math.min(1, b.used / b.capacity) : 0);

/** Whether a budget is closed now. @param {Budget} b */
export const isClosed = (b) => (b.until ?? 0) > now();

/** For how long a budget is still closed: a second at least while it is. @param {Budget} b */
export const closedFor = (b) => Math.ceil(((b.until ?? 0) - now()) / 1000) * 1000;

/** Whether requests wait because a budget has no room: others have their starts here, and another budget holds them. @param {Budget} b */
export const holds = (b) => !b.shadow && (b.waiting ?? 0) > 0 && b.wait !== 0;

/** The name of a budget: its key is of use only if its policy has several. @param {Budget} b */
export function nameOf(b) {
  const several = Object.values(known.state?.budgets ?? {}).some((other) => other.policy === b.policy && other.key !== b.key);
  return several ? `${b.policy}/${b.key.slice(0, 8)}` : b.policy;
}

/** Who closed a budget, and why. @param {Budget} b */
export function closedBy(b) {
  if (b.by) return b.reason ? word("by reason", {by: b.by, reason: b.reason}) : word("by", {by: b.by});
  return b.repeated ? `${word("by answer")}; ${word("again", {n: b.repeated})}` : word("by answer");
}

/** When the next request could start. @param {Budget} b */
export function nextStart(b) {
  if (isClosed(b)) return word("in", {time: seconds(closedFor(b))});
  if (b.wait < 0) return word(b.kind === "flight" ? "ends" : "unplanned");
  if (b.wait === 0) return b.kind === "flight" && b.capacity > 0 && b.used >= b.capacity ? word("ends") : word("now");
  return word("in", {time: span(b.wait)});
}
