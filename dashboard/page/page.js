// The page of package dashboard. It asks its server and nobody else, and puts in texts as text only.

import {byId, put, say} from "./dom.js";
import {openNamed, showBudgets} from "./budgets.js";
import {showGlance} from "./glance.js";
import {access, showAccess, wire} from "./steer.js";
import {follow, known, tick} from "./stream.js";
import {showActs, showPrograms} from "./tables.js";
import {clock, word} from "./words.js";

let isFirst = true;
const title = document.title;

/** Shows all that is known. */
function show() {
  tick();
  const live = known.live;
  put(byId("live"), "data-state", live);
  const as = known.state && live !== "live" ? " · " + word("since", {time: clock(known.state.at)}) : "";
  say(byId("live-text"), word(live === "wait" ? "connecting" : live) + as);
  showAccess();
  if (!known.state) return;
  byId("shown").hidden = false;
  byId("people").hidden = !known.state.kind; // nothing was read yet
  showGlance();
  document.title = (byId("glance").dataset.state === "closed" ? `${byId("verdict").textContent} · ` : "") + title;
  showBudgets();
  showPrograms();
  showActs();
  if (isFirst) openNamed();
  isFirst = false;
}

wire(show);
showAccess();
if (access.read) {
  byId("shown").hidden = false;
  follow(show);
  addEventListener("hashchange", openNamed);
  byId("trouble").addEventListener("click", (e) => { // a second click changes no address
    if (e.target instanceof HTMLAnchorElement && e.target.hash === location.hash) openNamed();
  });
  addEventListener("resize", show);
  setInterval(() => { if (!document.hidden && known.live !== "live") show(); }, 1000);
} else {
  byId("live").hidden = true;
}
