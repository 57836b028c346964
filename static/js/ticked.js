// @ts-check
/* Which runs of a table are ticked, and the bar of what can be done with them. */

/** What is ticked stays so when the tables are fetched anew, and when a run goes from one table to another. */
const ticked = new Set();

const boxes = () => /** @type {HTMLInputElement[]} */ ([...document.querySelectorAll('#runs input[name=run]')]);

export function show() {
  const bar = document.getElementById('selection');
  const there = new Set(boxes().map((box) => box.value));
  for (const run of ticked) if (!there.has(run)) ticked.delete(run);
  for (const box of boxes()) {
    box.checked = ticked.has(box.value);
    box.closest('tr')?.classList.toggle('is-ticked', box.checked);
  }
  const all = /** @type {HTMLInputElement | null} */ (document.querySelector('#runs [data-all]'));
  if (all) [all.checked, all.indeterminate] = [ticked.size > 0 && ticked.size === there.size, ticked.size > 0 && ticked.size < there.size];
  if (!bar) return;
  bar.hidden = ticked.size === 0;
  const text = /** @type {HTMLElement} */ (bar.querySelector('[data-selected]'));
  text.textContent = `${ticked.size} selected`;
}

/** @param {HTMLInputElement} box @param {boolean} on */
export function tick(box, on) {
  if (on) ticked.add(box.value);
  else ticked.delete(box.value);
}

export function start() {
  document.addEventListener('change', (event) => {
    const box = /** @type {HTMLInputElement} */ (event.target);
    if (box.matches('#runs [data-all]')) for (const each of boxes()) tick(each, box.checked);
    else if (box.name === 'run') tick(box, box.checked);
    else return;
    show();
  });
  document.addEventListener('click', (event) => {
    const button = /** @type {Element} */ (event.target).closest('button');
    if (button?.form?.id !== 'selection') return;
    const name = button.closest('tr')?.querySelector('th a')?.textContent;
    const question = button.value === 'delete' ? `Delete ${ticked.size} runs with all their files?` : name && `Stop ${name}? What it has written so far stays.`;
    if (question) button.setAttribute('data-confirm', question); // it is asked before the form is sent, see app.js
  });
  document.addEventListener('htmx:after:swap', show);
  for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll('#runs input[name=run]:checked'))) ticked.add(box.value);
  show();
}
