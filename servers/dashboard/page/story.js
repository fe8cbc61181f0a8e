// The story of a budget that is closed or holds requests: the cause and its beginning, the affected programs, and the remedy.

import {make, put, say} from "./dom.js";
import {closedBy, closedSpan, isClosed, nameOf, waitingWords} from "./state.js";
import {known} from "./stream.js";
import {access, order} from "./steer.js";
import {comma, count, page, word} from "./words.js";

/**
 * @typedef {import("./stream.js").Budget} Budget
 * @typedef {{root: HTMLElement, why: HTMLElement, who: HTMLElement, help: HTMLElement, advice: HTMLElement, runbook: HTMLElement,
 *   resume: HTMLButtonElement, command: Command}} Story
 * @typedef {{root: HTMLElement, text: HTMLElement, copy: HTMLButtonElement}} Command
 */

/** The largest number of named programs. */
const mostNamed = 4;

/**
 * Makes the story of a budget.
 * @param {string} id
 * @returns {Story}
 */
export function makeStory(id) {
  const why = make("p"), who = make("p"), advice = make("span");
  const runbook = make("a", {target: "_blank", rel: "noopener noreferrer"}, word("runbook"));
  const resume = /** @type {HTMLButtonElement} */ (make("button", {type: "button"}, word("resume")));
  const command = makeCommand();
  const help = make("p", {class: "help"}, advice, runbook, resume, command.root);
  resume.addEventListener("click", () => order("resume", id));
  return {root: make("div", {class: "story"}, why, who, help), why, who, help, advice, runbook, resume, command};
}

/**
 * Shows the story of a budget as it is now.
 * @param {Story} s
 * @param {Budget} b
 */
export function showStory(s, b) {
  const closed = isClosed(b);
  say(s.why, closed ? `${closedBy(b)} · ${closedSpan(b)}` : b.why?.[page.language === "zh" ? "zh" : "en"] ?? "");
  const hurt = [waitingWords(b), programsOf(b), lost(b)].filter(Boolean);
  say(s.who, hurt.join(" · ") || (closed ? word("nobody hurt") : ""));
  s.who.hidden = !s.who.textContent;

  const byHand = closed && Boolean(b.by);
  say(s.advice, closed ? advice(b, byHand) : "");
  s.runbook.hidden = !b.runbook;
  if (b.runbook) put(s.runbook, "href", b.runbook);
  s.resume.hidden = !byHand || !access.act || Boolean(b.node);
  put(s.resume, "aria-label", word("resume title", {name: nameOf(b)}));
  showCommand(s.command, closed && !b.node ? (byHand ? commandOf("resume", b) : commandOf("reset", b)) : "");
  s.help.hidden = !closed && !b.runbook;
}

/**
 * The remedy for a closed budget.
 * @param {Budget} b
 * @param {boolean} byHand whether an operator closed it
 */
function advice(b, byHand) {
  if (byHand) return word("advice pause");
  if (known.state?.kind !== "fleet") return word("advice alone");
  return word(b.closer === "program" ? "advice program" : "advice ban");
}

/** The programs that wait for a budget or, without waiting programs, the programs that use it. @param {Budget} b */
export function programsOf(b) {
  const all = b.programs ?? [];
  const waiting = all.filter((p) => (p.waiting ?? 0) > 0);
  const shown = waiting.length ? waiting : all;
  const named = shown.filter((p) => p.program).slice(0, mostNamed).map((p) => {
    const name = p.nodes > 1 ? `${p.program} ×${p.nodes}` : p.program;
    return waiting.length ? word("program waits", {program: name, n: count(p.waiting ?? 0)}) : name;
  });
  const more = shown.length - Math.min(shown.length, mostNamed);
  if (more > 0) named.push(word("more programs", {n: more}));
  return named.join(comma);
}

/** The number of requests that gave up or were refused. @param {Budget} b */
function lost(b) {
  const parts = [];
  if (b.left) parts.push(word("gave up", {n: count(b.left)}));
  if (b.refused) parts.push(word("were refused", {n: count(b.refused)}));
  return parts.length ? word("last minute", {what: parts.join(comma)}) : "";
}

/**
 * The command line of an act, or "" if the source is not a fleet.
 * @param {"pause" | "resume" | "reset"} act
 * @param {Budget} b
 */
export function commandOf(act, b) {
  if (known.state?.kind !== "fleet") return "";
  return `throttle ${act} ${quote(b.name)}` + (act === "pause" ? " --for 10m" : "") + ` --reason ${quote(word("reason blank"))}`;
}

/** A text quoted for a shell. @param {string} text */
const quote = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** Makes a command line with a button that copies it. @returns {Command} */
export function makeCommand() {
  const text = make("code"), copy = /** @type {HTMLButtonElement} */ (make("button", {type: "button", class: "quiet"}, word("copy")));
  copy.hidden = !navigator.clipboard; // over http, browsers offer the clipboard only to pages of this machine
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text.textContent ?? "");
    say(copy, word("copied"));
    setTimeout(() => say(copy, word("copy")), 2000);
  });
  return {root: make("span", {class: "command"}, text, copy), text, copy};
}

/**
 * Shows a command line, or hides it if the text is "".
 * @param {Command} c
 * @param {string} text
 */
export function showCommand(c, text) {
  c.root.hidden = !text;
  say(c.text, text);
}
