// The acts of an operator: unlock the page, pause and resume a budget.

import {byId, make, put, say} from "./dom.js";
import {nameOf} from "./state.js";
import {known} from "./stream.js";
import {page, word} from "./words.js";

/** The rights of the viewer. */
export const access = page.access;

/** @type {() => void} */
let changed = () => {};

const dialogs = {token: /** @type {HTMLDialogElement} */ (byId("token")), order: /** @type {HTMLDialogElement} */ (byId("order"))};

/** The act and the budget of the open dialog. */
let asked = {act: "", budget: ""};

/** The key of the operator's last name in the storage of this browser. */
const nameKey = "throttle-dashboard-name";

/**
 * Posts an order. It returns the mistake, or "" on success. An answer with rights replaces the rights of the viewer.
 * @param {string} path
 * @param {object} body
 * @returns {Promise<string>}
 */
async function post(path, body) {
  try {
    const r = await fetch(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
    if (r.ok) {
      if (r.status === 200) Object.assign(access, await r.json());
      return "";
    }
    const text = await r.text();
    try {
      return JSON.parse(text).error;
    } catch {
      return text;
    }
  } catch {
    return word("page lost");
  }
}

/**
 * Opens the dialog of an act.
 * @param {"pause" | "resume"} act
 * @param {string} id of the budget
 */
export function order(act, id) {
  const b = known.state?.budgets[id];
  if (!b) return;
  asked = {act, budget: id};
  say(byId("order-title"), word(act + " title", {name: nameOf(b)}));
  say(byId("order-note"), word(act + " note"));
  byId("order-for").hidden = act === "resume";
  const named = Boolean(access.user);
  byId("order-by-label").hidden = byId("order-by").hidden = named;
  const by = /** @type {HTMLInputElement} */ (byId("order-by"));
  by.required = !named;
  if (!by.value) by.value = localStorage.getItem(nameKey) ?? "";
  /** @type {HTMLInputElement} */ (byId("order-reason")).value = "";
  const main = /** @type {HTMLElement} */ (dialogs.order.querySelector(".main"));
  say(main, word(act + " now"));
  open(dialogs.order);
  byId("order-reason").focus();
}

/** Opens a dialog without the mistake of an earlier order. @param {HTMLDialogElement} dialog */
function open(dialog) {
  say(/** @type {HTMLElement} */ (dialog.querySelector(".wrong")), "");
  dialog.showModal();
}

/**
 * Has a dialog send its complete form, and close on success. A mistake stays in the dialog.
 * @param {HTMLDialogElement} dialog
 * @param {(form: FormData) => Promise<string>} send returns the mistake, or ""
 */
function onSubmit(dialog, send) {
  const form = /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const main = /** @type {HTMLButtonElement} */ (form.querySelector(".main"));
    if (main.disabled) return;
    main.disabled = true;
    const wrong = await send(new FormData(form));
    main.disabled = false;
    say(/** @type {HTMLElement} */ (form.querySelector(".wrong")), wrong);
    if (!wrong) {
      dialog.close();
      changed();
    }
  });
  form.querySelector(".cancel")?.addEventListener("click", () => dialog.close());
}

/** The channel to the page's tabs. Locking one tab locks all tabs. */
const tabs = "BroadcastChannel" in window ? new BroadcastChannel("throttle-dashboard " + location.pathname) : null;

/** Exchanges the token of a link for a cookie, and removes it from the address. It stands behind "#", so that no server logs it. */
async function useLink() {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (!token) return;
  history.replaceState(null, "", location.pathname + location.search);
  const before = access.read;
  if (access.act) return; // the page is unlocked already
  if (await post("token", {token: decodeURIComponent(token)})) return; // the token is wrong
  if (before) changed();
  else location.reload();
}

/** Asks for the present rights, and reloads the page if the viewer may no longer look. */
async function askAccess() {
  const now = await fetch("access").then((r) => r.json()).catch(() => null);
  if (!now?.read) return location.reload();
  Object.assign(access, {user: "", act: false}, now);
  changed();
}

/** Shows the button that locks or unlocks the page. */
export function showAccess() {
  const lock = byId("lock");
  lock.hidden = !access.token;
  say(lock, word(access.act ? "lock" : "unlock"));
}

/**
 * Adds the listeners of the page's buttons.
 * @param {() => void} onChange is called when the rights of the viewer have changed
 */
export function wire(onChange) {
  changed = onChange;
  const typed = /** @type {HTMLInputElement} */ (byId("token-text"));
  const openToken = () => {
    typed.value = "";
    open(dialogs.token);
  };
  onSubmit(dialogs.token, async (form) => {
    const before = access.read;
    const wrong = await post("token", {token: form.get("token")});
    if (wrong) typed.select();
    else typed.value = "";
    if (!wrong && !before) location.reload();
    return wrong;
  });
  void useLink();
  tabs?.addEventListener("message", askAccess);
  onSubmit(dialogs.order, async (form) => {
    const by = String(form.get("by") ?? "");
    if (by) localStorage.setItem(nameKey, by);
    const wrong = await post(asked.act, {budget: asked.budget, for: Number(form.get("for")), by, reason: form.get("reason")});
    return wrong && word("failed act", {why: wrong});
  });
  byId("lock").addEventListener("click", async () => {
    if (!access.act) return openToken();
    await post("forget", {});
    tabs?.postMessage("locked");
    await askAccess();
  });
  if (!access.read) {
    say(byId("shut-why"), page.why);
    byId("shut").hidden = false;
    if (access.token) {
      const button = make("button", {type: "button", class: "main"}, word("unlock"));
      button.addEventListener("click", openToken);
      byId("shut").append(button);
    }
  }
  put(document.body, "data-wired", "");
}
