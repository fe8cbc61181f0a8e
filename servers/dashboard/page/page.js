// The page of package dashboard. It sends requests only to its own server, and inserts texts as text.

import {byId, put, say} from "./dom.js";
import {openNamed, showBudgets, wireBudgets} from "./budgets.js";
import {showGlance} from "./glance.js";
import {countKeys} from "./state.js";
import {access, showAccess, wire} from "./steer.js";
import {follow, isFresh, known, standing, tick} from "./stream.js";
import {showActs, showPrograms} from "./tables.js";
import {clock, word} from "./words.js";

let isFirst = true;
const title = document.title;

/** The icons of the tab by the worst state. The remaining states have the plain icon. */
const icons = new Map([["away", "icon-away.svg"], ["closed", "icon-closed.svg"], ["waits", "icon-waits.svg"], ["silent", "icon-waits.svg"]]);

/** Draws the page. The first drawing with data also opens the budget that the address names. */
function show() {
  tick();
  const live = standing();
  put(byId("live"), "data-state", live);
  const asOf = known.state?.at && !isFresh() ? " · " + word("as of", {time: clock(known.state.at)}) : "";
  say(byId("live-text"), word(live === "wait" ? "connecting" : live) + asOf);
  showAccess();
  if (!known.state) return;

  byId("shown").hidden = false;
  byId("people").hidden = !known.state.kind; // before the first reading
  countKeys();
  showTab(showGlance());
  showBudgets();
  showPrograms();
  showActs();
  if (isFirst) openNamed();
  isFirst = false;
}

/** Shows the worst state in the tab, for viewers who see only the tab. @param {string} worst */
function showTab(worst) {
  const isTrouble = worst === "away" || worst === "closed" || worst === "waits" || worst === "silent";
  const whole = isTrouble ? `${byId("verdict").textContent} · ${title}` : title;
  if (document.title !== whole) document.title = whole;
  put(byId("icon"), "href", icons.get(worst) ?? "icon.svg");
}

wire(show);
showAccess();
if (access.read) {
  wireBudgets();
  byId("shown").hidden = false;
  follow(show);
  addEventListener("hashchange", openNamed);
  addEventListener("click", (e) => { // a second click does not change the address
    if (e.target instanceof HTMLAnchorElement && e.target.hash && e.target.hash === location.hash) openNamed();
  });
  // Without events the page draws itself, so that its state and countdowns stay true.
  setInterval(() => { if (!document.hidden && (known.live !== "live" || Date.now() - known.heard > 5000)) show(); }, 1000);
} else {
  byId("live").hidden = true;
}
