// Charts, drawn by hand as SVG.

import {draw, put} from "./dom.js";
import {known} from "./stream.js";
import {clock, number, word} from "./words.js";

/** @typedef {import("./stream.js").Band} Band */

/**
 * The longest interval between two readings that is not a gap. In a gap nobody viewed the page, or the source could not be
 * read. Readings are a second apart, ten seconds apart while only --watch reads, and a minute apart in the past.
 * @param {number} time the length of the chart
 */
const gapOf = (time) => (time > 3600e3 ? 150e3 : known.state?.watched ? 25e3 : 5e3);

/**
 * The paths of a stepped line and of the area below it. A value holds until the next value, or for a second before a gap.
 * @param {number[]} at the moments of the values, ascending
 * @param {number[]} values
 * @param {(at: number) => number} x
 * @param {(value: number) => number} y
 * @param {number} from the first moment that is drawn
 * @param {number} to the last moment that is drawn; the last value holds until then, but not beyond a gap
 */
function paths(at, values, x, y, from, to) {
  let line = "", area = "";
  const gap = gapOf(to - from);
  const f = (/** @type {number} */ n) => n.toFixed(1);
  // Each run of values without a gap is one piece of the line.
  for (let i = firstSince(at, from); i < at.length;) {
    const begin = f(x(Math.max(from, at[i])));
    let d = `M${begin} ${f(y(values[i]))}`;
    for (;;) {
      const next = at[i + 1];
      let end = next === undefined ? Math.min(to, at[i] + gap) : next - at[i] > gap ? at[i] + 1000 : next;
      // Join equal values into one step.
      while (i + 2 < at.length && values[i + 1] === values[i] && at[i + 2] - at[i + 1] <= gap && next - at[i] <= gap) {
        i++;
        end = at[i + 1];
      }
      d += `H${f(x(Math.min(to, end)))}`;
      i++;
      if (i >= at.length || at[i] - at[i - 1] > gap) break;
      d += `V${f(y(values[i]))}`;
    }
    line += d;
    area += `${d}V${f(y(0))}H${begin}Z`;
  }
  return {line, area};
}

/**
 * The index of the last point up to a moment, or 0 if all points are later.
 * @param {number[]} at
 * @param {number} moment
 */
export function firstSince(at, moment) {
  let low = 0, high = at.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (at[mid] <= moment) low = mid + 1;
    else high = mid;
  }
  return Math.max(0, low - 1);
}

/**
 * Draws a small chart without words into an SVG with a viewBox of 100 by 30.
 * @param {SVGElement} svg
 * @param {{at: number[], values: number[], top: number, bands: Band[], from: number, to: number}} c
 */
export function spark(svg, c) {
  const x = (/** @type {number} */ t) => Math.max(0, Math.min(100, (t - c.from) / (c.to - c.from) * 100));
  const y = (/** @type {number} */ v) => 29 - Math.min(1, v / c.top) * 27;
  const p = paths(c.at, c.values, x, y, c.from, c.to);
  svg.replaceChildren(
    ...gaps(c.at, c.from, c.to).map(([begin, end]) => draw("rect", {class: "gap", x: x(begin), y: 0, width: x(end) - x(begin), height: 30})),
    ...c.bands.filter((b) => b.until > c.from).map((b) => draw("rect", {class: "band", x: x(b.from), y: 0, width: Math.max(0.8, x(b.until) - x(b.from)), height: 30})),
    draw("path", {class: "area", d: p.area}),
    draw("path", {class: "line", d: p.line}),
  );
}

/**
 * The top of a scale for a value: the next 1, 2 or 5 times a power of ten.
 * @param {number} n
 */
function ceiling(n) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, n)));
  for (const m of [1, 2, 5]) if (n <= m * power) return m * power;
  return 10 * power;
}

/**
 * The gaps between two moments: see gapOf. A gap begins a second after the last value before it.
 * @param {number[]} at the moments of the values, ascending
 * @param {number} from
 * @param {number} to
 * @returns {[number, number][]}
 */
function gaps(at, from, to) {
  /** @type {[number, number][]} */
  const all = [];
  const gap = gapOf(to - from);
  let last = from;
  for (const t of at) {
    if (t <= from) continue;
    if (t - last > gap) all.push([last === from ? from : last + 1000, t]);
    last = t;
  }
  if (to - last > gap) all.push([last === from ? from : last + 1000, to]);
  return all;
}

const left = 6, right = 6, above = 20, below = 22;

/**
 * Draws a chart with its words into an SVG whose size is known.
 * @param {SVGElement} svg
 * @param {{width: number, height: number, at: number[], values: number[], limit: number, bands: Band[], from: number, to: number, cursor: number | null,
 *   label: string, name: boolean}} c a limit of 0 is no limit; cursor is the moment under the pointer; name shows the causes of bands
 */
export function chart(svg, c) {
  const {width, height} = c;
  if (width < 20) return;
  put(svg, "viewBox", `0 0 ${width.toFixed(0)} ${height.toFixed(0)}`);
  put(svg, "aria-label", c.label);

  // The scales of the axes.
  const bottom = height - below;
  let most = 0;
  for (let i = firstSince(c.at, c.from); i < c.values.length; i++) most = Math.max(most, c.values[i]);
  const top = c.limit > 0 ? Math.max(c.limit, most) : ceiling(Math.max(1, most));
  const x = (/** @type {number} */ t) => left + Math.max(0, Math.min(1, (t - c.from) / (c.to - c.from))) * (width - left - right);
  const y = (/** @type {number} */ v) => bottom - v / top * (bottom - above);

  // The times in which the budget was closed, and the gaps, lie behind the line.
  const parts = [];
  for (const b of c.bands) {
    if (b.until <= c.from || b.from >= c.to) continue;
    const x0 = x(b.from), x1 = Math.max(x0 + 2, x(Math.min(b.until, c.to)));
    parts.push(draw("rect", {class: "band", x: x0, y: above, width: x1 - x0, height: bottom - above}),
      draw("line", {class: "band-edge", x1: x0, x2: x0, y1: above, y2: bottom}));
    const text = bandWords(b);
    if (c.name && x1 - x0 > 7 * text.length) parts.push(draw("text", {class: "red", x: x0 + 6, y: above + 16}, text));
  }
  for (const [begin, end] of gaps(c.at, c.from, c.to)) {
    const x0 = x(begin), x1 = x(end);
    parts.push(draw("rect", {class: "gap", x: x0, y: above, width: x1 - x0, height: bottom - above}));
    if (c.name && x1 - x0 > 90) parts.push(draw("text", {class: "middle", x: (x0 + x1) / 2, y: (above + bottom) / 2}, word("no history")));
  }

  const p = paths(c.at, c.values, x, y, c.from, c.to);
  parts.push(draw("line", {class: "base", x1: left, x2: width - right, y1: bottom, y2: bottom}),
    draw("path", {class: "area", d: p.area}), draw("path", {class: "line", d: p.line}));
  const high = c.limit > 0 ? c.limit : top;
  parts.push(draw("line", {class: "top-line", x1: left, x2: width - right, y1: y(high), y2: y(high)}),
    draw("text", {x: left, y: Math.max(above, y(high)) - 6}, (c.limit > 0 ? word("limit") + " " : "") + number(high)));
  parts.push(draw("text", {x: left, y: height - 5}, clock(c.from)), draw("text", {class: "end", x: width - right, y: height - 5}, clock(c.to)));
  if (c.cursor !== null && c.cursor >= c.from) {
    const at = x(c.cursor);
    parts.push(draw("line", {class: "cursor", x1: at, x2: at, y1: above, y2: bottom}));
    parts.push(draw("text", {class: "middle", x: Math.max(left + 130, Math.min(width - right - 30, at)), y: above - 6}, clock(c.cursor)));
  }
  svg.replaceChildren(...parts);
}

/**
 * The moment under a pointer.
 * @param {SVGElement} svg
 * @param {number} clientX
 * @param {number} from
 * @param {number} to
 */
export function momentAt(svg, clientX, from, to) {
  const box = svg.getBoundingClientRect();
  const share = (clientX - box.left - left) / (box.width - left - right);
  return from + Math.max(0, Math.min(1, share)) * (to - from);
}

/**
 * Who closed a budget, and why.
 * @param {Band} b
 */
export function bandWords(b) {
  if (!b.by) return word(b.closer === "program" ? "by program" : "band answer");
  return b.reason ? word("by reason", {by: b.by, reason: b.reason}) : word("by", {by: b.by});
}
