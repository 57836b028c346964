// @ts-check
/* The experiment's page: steps and time left of runs in progress between two refetches of the tables, and which runs are ticked. */

import * as live from './live.js';
import { showProgress } from './points.js';

live.on('points', (message) => {
  const run = String(message.topic).replace('run-', '');
  showProgress(document.querySelector(`tr[data-run="${run}"]`), message.progress || {});
});

/** What is ticked stays so when the tables are fetched anew, and when a run goes from one table to another. */
const ticked = new Set();
const bar = document.getElementById('selection');

function show() {
  const boxes = /** @type {HTMLInputElement[]} */ ([...document.querySelectorAll('#runs input[name=run]')]);
  const there = new Set(boxes.map((box) => box.value));
  for (const run of ticked) if (!there.has(run)) ticked.delete(run);
  for (const box of boxes) {
    box.checked = ticked.has(box.value);
    box.closest('tr')?.classList.toggle('is-ticked', box.checked);
  }
  if (!bar) return;
  bar.hidden = ticked.size === 0;
  const text = /** @type {HTMLElement} */ (bar.querySelector('[data-selected]'));
  text.textContent = ticked.size === 1 ? '1 run ticked:' : `${ticked.size} runs ticked:`;
}

document.addEventListener('change', (event) => {
  const box = /** @type {HTMLInputElement} */ (event.target);
  if (box.name !== 'run') return;
  if (box.checked) ticked.add(box.value);
  else ticked.delete(box.value);
  show();
});
bar?.addEventListener('submit', (event) => {
  const button = /** @type {HTMLButtonElement} */ (/** @type {SubmitEvent} */ (event).submitter);
  const name = button?.closest('tr')?.querySelector('th a')?.textContent;
  const question = button?.value === 'delete' ? `Delete ${ticked.size} runs with all their files?` : name && `Stop ${name}? What it has written so far stays.`;
  if (question && !window.confirm(question)) event.preventDefault();
});
document.addEventListener('htmx:after:swap', show);
for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll('#runs input[name=run]:checked'))) ticked.add(box.value);
show();
