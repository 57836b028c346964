// @ts-check
/* The table of runs: its keys, what stays at the left, the chooser of columns, and the values of runs in progress between two refetches. */

import * as live from './live.js';
import { showProgress } from './points.js';
import * as ticked from './ticked.js';

/** As the server writes a metric (templatetags.studio.value). @param {number | null} number */
function written(number) {
  if (number === null || !Number.isFinite(number)) return 'not finite';
  const size = Math.abs(number);
  if (number && (size < 1e-3 || size >= 1e6)) return number.toExponential(3).replace(/e([+-])(\d)$/, 'e$10$2');
  return size < 1000 ? String(Number(number.toPrecision(4))) : number.toFixed(0);
}

live.on('points', (message) => {
  const run = String(message.topic).replace('run-', '');
  const row = document.querySelector(`tr[data-run="${run}"]`);
  if (!row) return;
  showProgress(row, message.progress || {});
  /** @type {Map<string, number | null>} */
  const latest = new Map();
  for (const [group, name, , , value] of message.points) latest.set(`${group} ${name}`, value);
  for (const cell of row.querySelectorAll('[data-metric]')) {
    const value = latest.get(cell.getAttribute('data-metric') || '');
    if (value !== undefined) cell.textContent = written(value);
  }
});

/** Pinned columns stand beside each other at the left: each begins where those before it end. */
function pin() {
  const heads = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('.run-table thead th')]);
  let left = 0;
  heads.forEach((head, place) => {
    const stays = head.matches('.tick, .first, .pin');
    if (!stays) return;
    const begin = left;
    if (head.matches('.pin')) {
      for (const row of document.querySelectorAll('.run-table tr')) {
        const cell = /** @type {HTMLElement | undefined} */ (row.children[place]);
        if (cell) cell.style.left = `${begin}px`;
      }
    }
    left = begin + head.offsetWidth;
  });
}

/** Arrows go from run to run, with Shift they tick them on the way; Space ticks (as anywhere), Enter opens. @param {KeyboardEvent} event */
function keys(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const box = target.closest('.run-table');
  if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
  const boxes = /** @type {HTMLInputElement[]} */ ([...box.querySelectorAll('input[name=run]')]);
  const at = boxes.indexOf(/** @type {HTMLInputElement} */ (target.closest('tr')?.querySelector('input[name=run]')));
  if (event.key === 'Enter' && target === boxes[at]) {
    target.closest('tr')?.querySelector('a')?.click();
    return event.preventDefault();
  }
  const goals = { ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, Home: 0, End: boxes.length - 1 };
  const goal = goals[/** @type {keyof typeof goals} */ (event.key)];
  const next = goal === undefined ? undefined : boxes[Math.max(0, Math.min(boxes.length - 1, goal))];
  if (!next) return;
  event.preventDefault();
  if (event.shiftKey) {
    if (at >= 0) ticked.tick(boxes[at], true);
    ticked.tick(next, true);
    ticked.show();
  }
  next.focus();
}

/** The chooser: a column is found by a part of its name, moved up and down; what is pinned is shown. @param {Event} event */
function choose(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const form = target.closest('[data-columns]');
  if (!form) return;
  const mover = target.closest('[data-move]');
  const item = target.closest('li');
  if (event.type === 'click' && mover && item) {
    const other = mover.getAttribute('data-move') === '1' ? item.nextElementSibling : item.previousElementSibling;
    if (other) mover.getAttribute('data-move') === '1' ? other.after(item) : other.before(item);
    /** @type {HTMLElement} */ (mover).focus();
  }
  if (event.type === 'input' && target.matches('[data-find]')) {
    const words = /** @type {HTMLInputElement} */ (target).value.trim().toLowerCase();
    for (const each of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll('li[data-column]'))) {
      each.hidden = !(each.textContent || '').toLowerCase().includes(words);
    }
  }
  if (event.type === 'change' && target.matches('[name=pin]') && /** @type {HTMLInputElement} */ (target).checked) {
    const shown = /** @type {HTMLInputElement | null | undefined} */ (item?.querySelector('[name=columns]'));
    if (shown) shown.checked = true;
  }
}

ticked.start();
pin();
document.addEventListener('htmx:after:swap', pin);
window.addEventListener('resize', pin);
document.addEventListener('keydown', keys);
for (const kind of ['click', 'input', 'change']) document.addEventListener(kind, choose);
