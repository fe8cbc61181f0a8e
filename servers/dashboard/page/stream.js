// The stream of the server: first the whole state, then the changes of each reading, once a second.

/**
 * @typedef {{from: number, before?: boolean, until: number, closer?: string, by?: string, reason?: string}} Band
 * @typedef {{program: string, nodes: number, starts: number, waiting?: number, oldest?: number, left?: number, refused?: number}} Use
 * @typedef {{share: string, weight?: number, waiting: number, served: number, shares?: number}} Share
 * @typedef {{name: string, policy: string, key: string, label?: string, group: string, limits: string[], told?: number, kind: string, capacity: number,
 *   shadow?: boolean, node?: string, nodes?: number, starts: number, cost: number, used: number, booked?: number,
 *   waiting?: number, wait: number, until?: number, repeated?: number, ceiling?: number, by?: string, reason?: string,
 *   closer?: "answer" | "program" | "operator", met?: string, programs?: Use[], oldest?: number, left?: number, refused?: number, runbook?: string,
 *   error?: string, waits?: {count: number, p50: number, p99: number}, shadowed?: {count: number, p99: number},
 *   shares?: Share[], bands?: Band[], why?: {en: string, zh: string}}} Budget
 * @typedef {{id: string, program: string, host: string, pid: number, library?: string, since: number, heard: number,
 *   silent?: boolean, off?: string, budgets: number, starts: number, follows?: boolean, inForce?: string, seen?: string,
 *   waits?: number, refused?: string}} Program
 * @typedef {{at: number, act: string, what: string, by: string, reason?: string, for?: number, failed?: boolean}} Act
 * @typedef {{at: number, kind?: string, failed?: string, failedAt?: number, nodes: Record<string, Program>,
 *   budgets: Record<string, Budget>, acts: Act[], budgetsLeftOut?: number, closedLeftOut?: number, nodesLeftOut?: number, illegible?: number,
 *   watched?: boolean, wrongTokens?: {count: number, at: number, client: string},
 *   file?: {number: number, generation: string, by: string, reason?: string, at: number}}} State
 * @typedef {{at: number[], used: number[], capacity: number[], waiting: number[], wait: number[], starts: number[]}} Points
 */

const names = /** @type {const} */ (["at", "used", "capacity", "waiting", "wait", "starts"]);

/** How long points are kept, in milliseconds. */
export const remembered = 3600e3;

/** How long the stream may be interrupted before the page says so, in milliseconds. */
const patience = 5000;

/** The data of the page: the state, the points of each budget, and how far the server's clock is ahead. */
export const known = {
  /** @type {State | null} */ state: null,
  /** @type {Map<string, Points>} */ points: new Map(),
  ahead: 0, // the last known value while the source cannot be read
  heard: 0, // time of the last event, by this browser's clock
  whole: 0, // number of whole states received; each drops the points of answered questions
  /** @type {"wait" | "live" | "hidden" | "lost"} */ live: "wait",
};

let shownAt = 0;

/** The time of the source for which the page is drawn. All parts of the page use the same time. */
export const now = () => shownAt;

/**
 * The state of the page: "live" while its data are new, "wait" during a short interruption, "away" while the source cannot be
 * read, "lost" while the server of the page does not answer, "hidden" while the page is not visible.
 * @returns {"wait" | "live" | "away" | "hidden" | "lost"}
 */
export const standing = () => (known.live === "live" && known.state?.failed ? "away" : known.live);

/** Whether the page shows the present. Only then may durations count. */
export const isFresh = () => standing() === "live" || standing() === "wait";

/** Sets the time of the page: the present or, without new data, the time of the last data. */
export function tick() {
  if (known.live === "live" && Date.now() - known.heard > 2 * patience) known.live = "lost"; // the machine has slept
  shownAt = isFresh() || !known.state ? Date.now() + known.ahead : known.state.at;
}

/**
 * Applies a merge patch (RFC 7396).
 * @param {any} target
 * @param {any} patch
 */
function merge(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const all = target !== null && typeof target === "object" && !Array.isArray(target) ? target : {};
  for (const [name, value] of Object.entries(patch)) {
    if (name === "__proto__") continue; // ids of programs come from Redis, and this id would change all objects
    if (value === null) delete all[name];
    else all[name] = merge(all[name], value);
  }
  return all;
}

/** @returns {Points} */
export const noPoints = () => ({at: [], used: [], capacity: [], waiting: [], wait: [], starts: []});

/** Adds a point for each budget, unless the reading failed. Drops points that are too old, and points of budgets not shown. */
function addPoints() {
  const s = /** @type {State} */ (known.state);
  if (s.failed) return;
  for (const [id, b] of Object.entries(s.budgets)) {
    let p = known.points.get(id);
    if (!p) known.points.set(id, p = noPoints());
    p.at.push(s.at);
    p.used.push(b.used);
    p.capacity.push(b.capacity);
    p.waiting.push(b.waiting ?? 0);
    p.wait.push(b.wait);
    p.starts.push(Math.max(0, b.starts));
    let old = 0;
    while (p.at[old] < s.at - remembered) old++;
    // Drop old points rarely, because splice copies the rest.
    if (old > 60) for (const name of names) p[name].splice(0, old);
  }
  for (const id of known.points.keys()) if (!s.budgets[id]) known.points.delete(id);
}

/**
 * Adds points of the server that are older than the known points.
 * @param {string} id
 * @param {Points} older
 */
export function addHistory(id, older) {
  const p = known.points.get(id) ?? noPoints();
  const first = p.at[0] ?? Infinity;
  const n = older.at.filter((at) => at < first).length;
  for (const name of names) p[name].unshift(...older[name].slice(0, n));
  known.points.set(id, p);
}

/**
 * Follows the server while the page is visible. A browser has six connections for a host, so a hidden page must not keep
 * a connection.
 * @param {() => void} changed is called after each change
 */
export function follow(changed) {
  /** @type {EventSource | null} */
  let source = null;
  let last = "", lost = 0;

  const open = () => {
    source = new EventSource("events" + (last && `?last=${encodeURIComponent(last)}`));
    source.addEventListener("state", (e) => {
      const all = JSON.parse(e.data);
      known.state = all.state;
      known.whole++;
      known.points = new Map(Object.entries(all.points));
      take(e);
    });
    source.addEventListener("change", (e) => {
      known.state = merge(known.state, JSON.parse(e.data));
      addPoints();
      take(e);
    });
    source.addEventListener("error", () => {
      if (known.live === "live") known.live = "wait";
      // A short interruption is normal, such as a restart of the server.
      lost ||= setTimeout(() => {
        if (known.live === "wait") known.live = "lost";
        changed();
      }, patience);
      changed();
      // The server refused, and the browser does not try again.
      if (source?.readyState === EventSource.CLOSED) {
        close();
        setTimeout(() => { if (!source && !document.hidden) open(); }, 5000);
      }
    });
  };
  /** @param {MessageEvent} e */
  const take = (e) => {
    clearTimeout(lost);
    lost = 0;
    last = e.lastEventId;
    const s = /** @type {State} */ (known.state);
    known.heard = Date.now();
    // A failed reading has the time of an older reading.
    if (!s.failed) known.ahead = s.at - known.heard;
    known.live = "live";
    changed();
  };
  const close = () => {
    source?.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      known.live = "hidden";
    } else if (!source) {
      known.live = "wait";
      open();
    }
    changed();
  });
  if (!document.hidden) open();
}
