// The details of one budget: why requests wait for it, charts, facts, and the acts of an operator.

import {draw, make, put, say} from "./dom.js";
import {bandWords, chart, momentAt} from "./chart.js";
import {holds, isClosed, nameOf, nextStart} from "./state.js";
import {addHistory, known, noPoints, now} from "./stream.js";
import {access, order} from "./steer.js";
import {commandOf, makeCommand, showCommand} from "./story.js";
import {clock, count, limitWords, number, page, seconds, span, word} from "./words.js";

/**
 * @typedef {import("./stream.js").Budget} Budget
 * @typedef {{root: HTMLElement, id: string, because: HTMLElement, title: HTMLElement, why: HTMLElement, facts: HTMLElement, programs: HTMLElement, shares: HTMLElement, command: import("./story.js").Command,
 *   charts: {svg: SVGElement, what: "used" | "starts" | "waiting", title: HTMLElement, width: number, height: number}[], slider: HTMLInputElement, spans: HTMLElement[], time: number,
 *   moment: number | null, whole: number, asked: number, bands: HTMLElement, pause: HTMLButtonElement, resume: HTMLButtonElement, note: HTMLElement}} Details
 */

const language = page.language === "zh" ? "zh" : "en";
const times = [{ms: 300e3, name: "5 min"}, {ms: 900e3, name: "15 min"}, {ms: 3600e3, name: "1 h"}, {ms: 6 * 3600e3, name: "6 h"}, {ms: 24 * 3600e3, name: "24 h"}];

/** The details whose charts are on the page, by chart. The browser reports changes of their sizes. @type {Map<Element, Details>} */
const drawn = new Map();
const sizes = new ResizeObserver((entries) => {
  for (const e of entries) {
    const d = drawn.get(e.target), c = d?.charts.find((c) => c.svg === e.target);
    if (!d || !c) continue;
    c.width = e.contentRect.width;
    c.height = e.contentRect.height;
    if (d.root.isConnected) showDetails(d);
    else forget(d);
  }
});

/** Stops observing the charts of closed details. @param {Details} d */
function forget(d) {
  for (const c of d.charts) {
    sizes.unobserve(c.svg);
    drawn.delete(c.svg);
  }
}

/**
 * Makes the details of a budget.
 * @param {string} id
 * @returns {Details}
 */
export function makeDetails(id) {
  const title = make("h3"), why = make("p"), because = make("div", {class: "because"}, title, why);
  const facts = make("dl", {class: "facts"}), bands = make("div", {class: "bandlist"});
  const shares = make("div", {class: "shares"}), programs = make("div", {class: "shares"});
  const command = makeCommand();
  const figures = /** @type {const} */ ([["used", "chart used"], ["starts", "chart starts"], ["waiting", "chart waiting"]]).map(([what, name]) => {
    const svg = draw("svg", {role: "img", class: what}), caption = make("figcaption", {}, word(name));
    return {svg, what, title: caption, width: 0, height: 0, figure: make("figure", {}, caption, svg)};
  });
  const slider = /** @type {HTMLInputElement} */ (make("input", {type: "range", min: "0", step: "1000"}));
  const spans = times.map((t) => make("button", {type: "button"}, word(t.name)));
  const pause = /** @type {HTMLButtonElement} */ (make("button", {type: "button"}, word("pause")));
  const resume = /** @type {HTMLButtonElement} */ (make("button", {type: "button"}, word("resume")));
  const note = make("p", {class: "note"});
  /** @type {Details} */
  const d = {
    root: make("div", {class: "details"}, because, make("div", {class: "steer"}, pause, resume, note, command.root),
      make("div", {class: "charts"}, ...figures.map((f) => f.figure)),
      make("div", {class: "times"}, make("div", {role: "group", "aria-label": word("span")}, ...spans), make("label", {}, word("moment"), slider), make("p", {class: "note hint"}, word("moment hint"))),
      facts, programs, shares, bands),
    id, because, title, why, facts, programs, shares, command, charts: figures, slider, spans, time: times[0].ms, moment: null, whole: -1, asked: 0, bands, pause, resume, note,
  };
  spans.forEach((b, i) => b.addEventListener("click", () => {
    d.time = times[i].ms;
    showDetails(d);
  }));
  slider.addEventListener("input", () => point(d, Number(slider.value) >= d.time ? null : now() - d.time + Number(slider.value)));
  for (const f of figures) {
    f.svg.addEventListener("pointermove", (e) => point(d, momentAt(f.svg, e.clientX, now() - d.time, now())));
    f.svg.addEventListener("pointerleave", (e) => { if (e.pointerType === "mouse") point(d, null); });
    f.svg.addEventListener("pointerdown", (e) => point(d, momentAt(f.svg, e.clientX, now() - d.time, now())));
    drawn.set(f.svg, d);
    sizes.observe(f.svg);
  }
  pause.addEventListener("click", () => order("pause", id));
  resume.addEventListener("click", () => order("resume", id));
  return d;
}

/**
 * Points at a moment. null means the present.
 * @param {Details} d
 * @param {number | null} moment
 */
function point(d, moment) {
  d.moment = moment;
  showDetails(d);
  if (d.moment !== null) askWhy(d, d.moment);
}

/**
 * Asks the server why requests waited at a moment. Of several questions only the last one is sent and shown.
 * @param {Details} d
 * @param {number} moment
 */
async function askWhy(d, moment) {
  // Wait until the pointer rests: a moving pointer would ask for each moment.
  const asked = ++d.asked;
  await new Promise((done) => setTimeout(done, 120));
  if (asked !== d.asked) return;
  const answer = await fetch(`why?budget=${encodeURIComponent(d.id)}&at=${moment.toFixed(0)}`).then((r) => r.json()).catch(() => null);
  // The viewer may have moved on while the server answered.
  if (asked !== d.asked || d.moment === null || !answer) return;
  // An answer names the moment of its reading, an error does not.
  say(d.why, answer.why ?? answer.error);
  say(d.title, word("why at", {time: clock(answer.at ?? moment)}));
}

/** Asks the server for points that are older than the stream's points. @param {Details} d */
async function askHistory(d) {
  d.whole = known.whole;
  const points = await fetch(`history?budget=${encodeURIComponent(d.id)}`).then((r) => (r.ok ? r.json() : null)).catch(() => null);
  if (!points) return;
  addHistory(d.id, points);
  showDetails(d);
}

/** Shows the details of a budget as they are now, or its explanation for the chosen moment. @param {Details} d */
export function showDetails(d) {
  const b = known.state?.budgets[d.id];
  if (!b) return;
  // After a new start of the stream the older points are gone.
  if (d.whole !== known.whole) void askHistory(d);
  // The moment has left the chart.
  if (d.moment !== null && d.moment < now() - d.time) d.moment = null;
  if (d.moment === null) {
    d.asked++;
    say(d.title, word(isClosed(b) || holds(b) ? "why now" : "state now"));
    say(d.why, b.error ?? (b.why ? b.why[language] : calm(b)));
  }
  put(d.because, "data-kind", d.moment !== null || b.shadow ? "past" : isClosed(b) ? "closed" : holds(b) ? "waits" : "calm");
  d.spans.forEach((s, i) => put(s, "aria-pressed", String(times[i].ms === d.time)));
  showCharts(d, b);
  showFacts(d, b);
  showPrograms(d, b);
  showShares(d, b);
  showBands(d, b);
  showSteer(d, b);
}

/** The sentence for a budget that holds no requests. @param {Budget} b */
function calm(b) {
  return b.wait > 0 ? word("next") + " " + nextStart(b) : word("nobody waits");
}

/**
 * Draws the charts, and sets the slider to the chosen moment.
 * @param {Details} d
 * @param {Budget} b
 */
function showCharts(d, b) {
  const p = known.points.get(d.id) ?? noPoints();
  const to = now(), from = to - d.time;
  for (const c of d.charts) {
    const values = p[c.what];
    const limit = c.what === "used" && b.kind !== "spaced" ? b.capacity : 0;
    const label = word("chart label", {title: c.title.textContent ?? "", now: number(values.at(-1) ?? 0), most: number(Math.max(0, ...values.slice(-d.time / 1000))), time: span(d.time)});
    chart(c.svg, {width: c.width, height: c.height, at: p.at, values, limit, bands: b.bands ?? [], from, to, cursor: d.moment, label, name: c.what === "used"});
  }
  put(d.slider, "max", String(d.time));
  d.slider.value = String(d.moment === null ? d.time : d.moment - from);
  put(d.slider, "aria-valuetext", d.moment === null ? word("now") : clock(d.moment));
}

/**
 * Shows the facts of a budget, each with its name and perhaps a note.
 * @param {Details} d
 * @param {Budget} b
 */
function showFacts(d, b) {
  /** @type {[string, string, string?][]} */
  const all = [[word("limit"), b.limits.map(limitWords).join(" / ")]];
  if (b.told) all.push([word("told"), word("told ago", {time: seconds(Math.max(0, now() - b.told))})]);
  if (b.capacity > 0 && b.kind !== "spaced") all.push([word("used"), word("used of", {used: count(b.used), capacity: count(b.capacity)})]);
  if (b.kind !== "unlimited") all.push([word("booked"), count(b.booked ?? 0)]);
  all.push([word("waiting"), count(b.waiting ?? 0)], [word("next"), nextStart(b)]);
  all.push([word("starts"), b.starts < 0 ? "–" : number(b.starts)]);
  if (Math.abs(b.cost - b.starts) > 0.05) all.push([word("cost"), number(b.cost)]);
  if (b.ceiling) all.push([word("ceiling"), number(b.ceiling)]);
  if (b.shadow && b.shadowed) {
    all.push([word("would hold"), b.shadowed.count ? word("would hold note", {n: count(b.shadowed.count), time: span(b.shadowed.p99)}) : word("would hold none")]);
  } else if (b.waits?.count) {
    const of = word("waits of", {n: count(b.waits.count)});
    all.push([word("waits p50"), span(b.waits.p50), of], [word("waits p99"), span(b.waits.p99), of]);
  } else if (b.waits) {
    all.push([word("waits p50"), "–", word("waits none")]);
  }
  if (known.state?.kind === "fleet") all.push([word("nodes use it"), b.node ? word("own of") : count(b.nodes ?? 0)]);
  all.push([word("hashed key"), b.key, b.label ?? ""]);
  if (d.facts.children.length !== all.length) d.facts.replaceChildren(...all.map(() => make("div", {}, make("dt"), make("dd", {}, make("span"), make("small")))));
  all.forEach(([name, value, note], i) => {
    const div = d.facts.children[i];
    say(div.children[0], name);
    say(div.children[1].children[0], value);
    say(div.children[1].children[1], note ?? "");
  });
}

/**
 * Shows which programs use a budget.
 * @param {Details} d
 * @param {Budget} b
 */
function showPrograms(d, b) {
  const rows = (b.programs ?? []).map((p) => [
    p.program ? (p.nodes > 1 ? `${p.program} ×${p.nodes}` : p.program) : word("more programs", {n: count(p.nodes)}),
    number(Math.max(0, p.starts)), count(p.waiting ?? 0), p.oldest ? seconds(now() - p.oldest) : "–", count(p.left ?? 0), count(p.refused ?? 0),
  ]);
  showTable(d.programs, "nodes use it", ["program", "starts", "waiting", "oldest wait", "gave up lately", "refused lately"], rows);
}

/**
 * Shows a table, unless it is empty.
 * @param {HTMLElement} root
 * @param {string} caption a word
 * @param {string[]} head words
 * @param {string[][]} rows
 */
function showTable(root, caption, head, rows) {
  root.hidden = rows.length === 0;
  const body = root.querySelector("tbody") ?? makeTable(root, caption, head);
  if (body.children.length !== rows.length) {
    body.replaceChildren(...rows.map(() => make("tr", {}, make("th", {scope: "row"}), ...head.slice(1).map(() => make("td", {class: "n"})))));
  }
  rows.forEach((cells, i) => cells.forEach((text, k) => say(body.children[i].children[k], text)));
}

/**
 * Makes a table, and returns its body.
 * @param {HTMLElement} root
 * @param {string} caption a word
 * @param {string[]} head words
 */
function makeTable(root, caption, head) {
  const cells = head.map((name, i) => make("th", i ? {scope: "col", class: "n"} : {scope: "col"}, word(name)));
  const body = make("tbody");
  root.append(make("table", {}, make("caption", {}, word(caption)), make("thead", {}, make("tr", {}, ...cells)), body));
  return body;
}

/**
 * Shows the shares whose callers wait.
 * @param {Details} d
 * @param {Budget} b
 */
function showShares(d, b) {
  const rows = (b.shares ?? []).map((s) => [shareName(s), s.weight ? count(s.weight) : "–", count(s.waiting), s.served < 0 ? word("served unknown") : count(s.served)]);
  showTable(d.shares, "shares", ["share", "weight", "waiting", "served"], rows);
}

/** The displayed name of a share. @param {import("./stream.js").Share} s */
function shareName(s) {
  if (s.shares) return word("share other", {n: count(s.shares)});
  return s.share === "none" ? word("share none") : s.share === "common" ? word("share common") : s.share;
}

/**
 * Shows the last five times in which a budget was closed, newest first.
 * @param {Details} d
 * @param {Budget} b
 */
function showBands(d, b) {
  const lines = [...(b.bands ?? [])].reverse().slice(0, 5).map((band) => {
    const length = (isClosed(b) && band.until > now() ? now() : band.until) - band.from;
    return `${clock(band.from)} · ${seconds(length)} · ${bandWords(band)}`;
  });
  if (lines.length) lines.unshift(word("bands"));
  if (d.bands.children.length !== lines.length) d.bands.replaceChildren(...lines.map((_, i) => make(i ? "p" : "h3")));
  lines.forEach((line, i) => say(d.bands.children[i], line));
  d.bands.hidden = lines.length === 0;
}

/**
 * Shows the buttons and the command by which an operator pauses and resumes a budget, or why there are none.
 * @param {Details} d
 * @param {Budget} b
 */
function showSteer(d, b) {
  const can = access.act && !b.node;
  d.pause.hidden = !can;
  d.resume.hidden = !can || !isClosed(b) || !b.by;
  const why = b.node ? word("act node") : !access.token ? word("act none") : can ? "" : word("act locked");
  say(d.note, why);
  showCommand(d.command, b.node || isClosed(b) ? "" : commandOf("pause", b)); // the story of a closed budget has the command
  put(d.pause, "aria-label", word("pause title", {name: nameOf(b)}));
  put(d.resume, "aria-label", word("resume title", {name: nameOf(b)}));
}
