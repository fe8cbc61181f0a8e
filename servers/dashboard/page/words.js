// The page's language: its words, numbers, lengths of time and moments.

/**
 * The data of the server for the scripts.
 * @typedef {{read: boolean, act: boolean, token: boolean, user?: string}} Access
 * @type {{language: string, words: Record<string, string>, access: Access, why: string}}
 */
export const page = JSON.parse(document.body.dataset.page || "{}");

const locale = page.language === "zh" ? "zh-CN" : "en";
const chinese = page.language === "zh";

/**
 * A word or a sentence with its blanks filled in. The spaces around a blank are for Latin letters, and are removed between
 * Chinese characters.
 * @param {string} name
 * @param {Record<string, string | number>} [blanks]
 */
export function word(name, blanks = {}) {
  const filled = (page.words[name] ?? name).replace(/\{(\w+)\}/g, (_, blank) => String(blanks[blank] ?? ""));
  return chinese ? filled.replace(/(?<=\p{sc=Han}) (?=\p{sc=Han})/gu, "") : filled;
}

/**
 * A limit as the page's language writes it.
 * @param {string} limit as throttle writes it
 */
export function limitWords(limit) {
  if (!chinese) return limit;
  for (const [form, words] of chineseLimits) if (form.test(limit)) return limit.replace(form, words);
  return limit;
}

/** The forms of limits with English words, and their Chinese forms. @type {[RegExp, string][]} */
const chineseLimits = [
  [/^unlimited$/, "不限"], [/^told$/, "按对方所报"], [/^no limit$/, "不限"], [/^(\d+) in flight$/, "同时 $1 个"], [/^(.+) burst (\d+)$/, "$1，最多攒 $2"],
  [/^(.+) paced$/, "$1，均匀"], [/^(.+) fixed$/, "$1，固定窗口"], [/^(\d+)\/day\b/, "$1/天"], [/^(\d+)\/week\b/, "$1/周"], [/^(\d+)\/month\b/, "$1/月"],
];

/** The separator of the items of a list. */
export const comma = chinese ? "、" : ", ";

/** The separator before a further clause. */
export const clause = chinese ? "，" : ", ";

const whole = new Intl.NumberFormat(locale, {maximumFractionDigits: 0});
const fine = new Intl.NumberFormat(locale, {maximumFractionDigits: 1});

/** A count. @param {number} n */
export const count = (n) => whole.format(n);

/** A rate or a further number with a fraction. @param {number} n */
export const number = (n) => (n < 10 ? fine : whole).format(n);

/** A share, in percent. @param {number} n */
export const percent = (n) => whole.format(Math.floor(n * 100)) + (chinese ? "%" : " %");

const units = chinese ? ["毫秒", "秒", "分钟", "小时", "天"] : ["ms", "s", "min", "h", "d"];

/**
 * A length of time with at most two units, in the form of the server.
 * @param {number} ms
 */
export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ${units[0]}`;
  if (ms < 10000) return `${(ms / 1000).toFixed(1)} ${units[1]}`;
  return seconds(ms);
}

/**
 * A length of time in whole seconds, for countdowns: its largest unit and the next smaller unit, unless that is 0.
 * @param {number} ms
 */
export function seconds(ms) {
  let rest = Math.max(0, Math.round(ms / 1000));
  const parts = [];
  for (const [unit, length] of [[4, 86400], [3, 3600], [2, 60], [1, 1]]) {
    const n = Math.floor(rest / length);
    const isOnlyPart = unit === 1 && parts.length === 0; // "0 s"
    if (n > 0 || isOnlyPart) parts.push(`${n} ${units[unit]}`);
    rest -= n * length;
    if (parts.length === 2 || (parts.length === 1 && n === 0)) break;
  }
  return parts.join(" ");
}

const clockFormat = new Intl.DateTimeFormat(locale, {hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"});
const dayFormat = new Intl.DateTimeFormat(locale, {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"});

/** A moment of today. @param {number} at */
export const clock = (at) => clockFormat.format(at);

/** A moment of any day. @param {number} at */
export const day = (at) => dayFormat.format(at);
