// @ts-check
/* Single keys: what they do is listed on the page of shortcuts, and they can be switched off there (<body data-shortcuts>). */

/** Two keys one after the other: g, then one of these. */
const PLACES = { p: '/projects/', c: '/cluster/', n: '/notifications/', u: '/cluster/usage/', s: '/profile/' };
const PATIENCE_MS = 1500;
let since = 0; // when g was pressed

/** @param {string} selector */
function press(selector) {
  const found = /** @type {HTMLElement | null} */ (document.querySelector(selector));
  found?.click();
  return Boolean(found);
}

/** The tab before or after the current one. @param {number} step */
function tab(step) {
  const all = /** @type {HTMLAnchorElement[]} */ ([...document.querySelectorAll('.tabs a')]);
  const at = all.findIndex((each) => each.hasAttribute('aria-current'));
  if (at >= 0) all[(at + step + all.length) % all.length].click();
  return at >= 0;
}

/** The row of a table before or after the one that has the focus. @param {number} step */
function row(step) {
  const links = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('main tbody th a, main .notification a, main .found a')]).filter((each) => each.offsetParent);
  if (!links.length) return false;
  const at = links.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + step))].focus();
  return true;
}

/** @param {string} key */
function obey(key) {
  if (Date.now() - since < PATIENCE_MS && key in PLACES) {
    location.assign(PLACES[/** @type {keyof typeof PLACES} */ (key)]);
    return true;
  }
  since = key === 'g' ? Date.now() : 0;
  if (key === '?') location.assign('/shortcuts/');
  else if (key === '/') {
    const box = /** @type {HTMLElement | null} */ (document.querySelector('main input[type=search]'));
    if (box) box.focus();
    else location.assign('/search/');
  } else if (key === 'n') return press('main .page-head a.button[href*="/new/"]:not(.button-tertiary)');
  else if (key === 'j') return row(1);
  else if (key === 'k') return row(-1);
  else if (key === '[') return tab(-1);
  else if (key === ']') return tab(1);
  else if (key === 'u') return press('.crumbs li:last-child a');
  else return false;
  return true;
}

export function start() {
  if (!('shortcuts' in document.body.dataset)) return;
  document.addEventListener('keydown', (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return;
    if (target.closest('input, textarea, select, [contenteditable]') || document.querySelector('dialog[open]')) return;
    if (obey(event.key)) event.preventDefault();
  });
}
