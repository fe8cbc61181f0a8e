// Elements of the page. Texts are inserted as text, never as HTML: names and reasons are foreign data.

const svgSpace = "http://www.w3.org/2000/svg";

/**
 * The element with an id, which the page has.
 * @param {string} id
 * @returns {HTMLElement}
 */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/**
 * A new element with attributes and children. A string becomes a text node.
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

/**
 * A new element of SVG.
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function draw(tag, attributes = {}, ...children) {
  const e = document.createElementNS(svgSpace, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, String(value));
  e.append(...children);
  return e;
}

/**
 * Sets a text if it has changed, so that screen readers announce only changes.
 * @param {Element} e
 * @param {string} text
 */
export function say(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/**
 * Sets an attribute if it has changed. null removes the attribute.
 * @param {Element} e
 * @param {string} name
 * @param {string | null} value
 */
export function put(e, name, value) {
  if (value === null) e.removeAttribute(name);
  else if (e.getAttribute(name) !== value) e.setAttribute(name, value);
}

/**
 * Makes the children of a parent match a list, in its order. A child is created once per key, so that it keeps the
 * focus.
 * @template T
 * @template {{root: Element}} V
 * @param {Element} parent
 * @param {Map<string, V>} views the present children, by key
 * @param {T[]} list
 * @param {(item: T) => string} key
 * @param {(item: T) => V} create
 * @param {(view: V, item: T) => void} update
 */
export function keep(parent, views, list, key, create, update) {
  const wanted = new Set(list.map(key));
  for (const [k, view] of views) {
    if (wanted.has(k)) continue;
    view.root.remove();
    views.delete(k);
  }
  let before = /** @type {Element | null} */ (null);
  for (const item of list) {
    const k = key(item);
    let view = views.get(k);
    if (!view) views.set(k, view = create(item));

    // Move the child only if a different one stands in its place. The parent may have other children, without data-kept.
    const present = before ? before.nextElementSibling : parent.querySelector(":scope > [data-kept]");
    put(view.root, "data-kept", "");
    if (present !== view.root) {
      if (before) before.after(view.root);
      else if (present) present.before(view.root);
      else parent.append(view.root);
    }
    update(view, item);
    before = view.root;
  }
}
