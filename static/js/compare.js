// @ts-check
/* Compare runs: several metrics at once, each in a chart with all runs, by step, samples or time since a run's own start; the table below says
   the values at the pointer. Live. */

import { Answers } from './answers.js';
import { colour, figure } from './chart.js';
import { Curves } from './curves.js';
import { Groups } from './groups.js';
import { keep, keepAll, kept, keptAll } from './kept.js';
import { Overlay, dashes } from './overlay.js';
import * as feed from './points.js';

const HEIGHT = 340;
const LOW = 240; // of each, where there are several
const MOST = 6;
const MOST_POINTS = 6000;

const host = /** @type {HTMLElement | null} */ (document.getElementById('overlay'));
const plots = /** @type {HTMLElement} */ (document.getElementById('plots'));
const choices = /** @type {HTMLElement} */ (document.getElementById('metric-choices'));

/** @typedef {import('./overlay.js').Shown & {row: HTMLTableRowElement, metrics: string[], reload: () => void}} Row  `metrics`: all that it has, of which
    `curves` holds those that were fetched */
/** @type {Row[]} */
const shown = [];
const answers = new Answers(host?.dataset.series || '', () => (answers.metrics.length ? wanted(metrics()) : keptAll('metric')), document.getElementById('first-curves')?.getAttribute('href') || '');
/** @type {Overlay[]} */
let overlays = [];
const choice = {
  axis: ['step', 'time', 'samples'].find((a) => a === kept('axis')) || 'step',
  weight: Math.min(0.95, Math.max(0, Number(kept('smooth')) || 0)),
  logarithmic: kept('scale') === 'log',
  groups: /** @type {(string | null)[] | null} */ (null), // of each run, where they are drawn together
};
let pending = 0;
let saying = 0;

/** All that there are, in the server's order: those first that most look at. */
function metrics() {
  const found = new Set(shown.flatMap((run) => run.metrics));
  return answers.metrics.filter((name) => found.has(name));
}

/** Those that are drawn: as many as the reader wants, one at least. @param {string[]} names */
function wanted(names) {
  const asked = keptAll('metric').filter((name) => names.includes(name));
  return (asked.length ? asked : names).slice(0, asked.length ? MOST : 1);
}

/** A box for each metric. @param {string[]} names @param {string[]} chosen */
function offer(names, chosen) {
  if (names.length === choices.children.length) return;
  choices.replaceChildren(
    ...names.map((name) => {
      const label = document.createElement('label');
      label.className = 'check';
      const box = Object.assign(document.createElement('input'), { type: 'checkbox', value: name, checked: chosen.includes(name) });
      box.addEventListener('change', choose);
      const words = document.createElement('bdi');
      words.textContent = name;
      label.append(box, ' ', words);
      return label;
    }),
  );
}

function choose() {
  const boxes = [.../** @type {NodeListOf<HTMLInputElement>} */ (choices.querySelectorAll('input'))];
  const ticked = boxes.filter((box) => box.checked);
  for (const box of boxes) box.disabled = box.checked ? ticked.length === 1 : ticked.length >= MOST; // one stays; more would say nothing
  const names = ticked.map((box) => box.value);
  keepAll('metric', names);
  schedule();
}

/** A chart for each of these metrics, and a column of their values. @param {string[]} names */
function draw(names) {
  for (const overlay of overlays) overlay.destroy();
  const columns = shown.length ? [...shown[0].row.closest('table').tHead.rows[0].cells].slice(1) : [];
  for (const cell of columns) cell.remove();
  for (const { row } of shown) for (const cell of [...row.cells].slice(1)) cell.remove();
  overlays = names.map((name) => {
    const box = Object.assign(document.createElement('figure'), { className: 'plot' });
    const caption = document.createElement('figcaption');
    const bold = document.createElement('b');
    bold.textContent = name;
    const at = Object.assign(document.createElement('span'), { className: 'quiet numbers' });
    caption.append(bold, ' ', at);
    const body = Object.assign(document.createElement('div'), { className: names.length > 1 ? 'chart-body chart-half' : 'chart-body chart-tall' });
    box.append(caption, body);
    const head = document.createElement('th');
    head.scope = 'col';
    head.className = 'number';
    head.textContent = name;
    shown[0].row.closest('table').tHead.rows[0].append(head);
    for (const { row } of shown) row.insertCell().className = 'number';
    return new Overlay(/** @type {HTMLElement} */ (host), body, name, shown, choice, moved);
  });
  plots.replaceChildren(...overlays.map((overlay) => /** @type {Element} */ (overlay.box.parentElement)));
  for (const overlay of overlays) overlay.build(overlays.length > 1 ? LOW : HEIGHT);
  key();
  say();
}

/** How each run's line looks, beside its name: in a group as the others of it. */
function key() {
  const dash = dashes(shown);
  const first = new Map();
  shown.forEach((run, i) => {
    const group = choice.groups?.[i] ?? null;
    if (group !== null && !first.has(group)) first.set(group, run.ink);
    const line = run.row.querySelector('line');
    line?.setAttribute('stroke-dasharray', choice.groups ? '' : dash[i].join(' '));
    line?.setAttribute('stroke', (choice.groups ? first.get(group) : run.ink) ?? 'none');
    /** @type {Element} */ (run.row.querySelector('.group-name')).textContent = group ?? '';
  });
}

/** The pointer moves in all charts at once. */
function moved() {
  if (!saying)
    saying = requestAnimationFrame(() => {
      saying = 0;
      say();
    });
}

/** The values at the pointer, or the last ones. */
function say() {
  overlays.forEach((overlay, column) => {
    /** @type {Element} */ (overlay.box.parentElement?.querySelector('figcaption span')).textContent = overlay.at();
    shown.forEach(({ row }, place) => (row.cells[column + 1].textContent = figure(/** @type {any} */ (overlay.value(place)))));
  });
}

function schedule() {
  if (pending) return;
  pending = requestAnimationFrame(() => {
    pending = 0;
    const names = metrics();
    /** @type {HTMLElement} */ (document.getElementById('no-curves')).hidden = names.length > 0; // it says what to do
    /** @type {HTMLElement} */ (host).hidden = !names.length;
    if (!names.length) return;
    const chosen = wanted(names);
    offer(names, chosen);
    const lacking = shown.filter((run) => chosen.some((name) => run.metrics.includes(name) && !run.curves.has(name)));
    if (lacking.length) return lacking.forEach((run) => run.reload()); // which schedules again
    if (overlays.map((overlay) => overlay.metric).join('\n') !== chosen.join('\n')) draw(chosen);
    else for (const overlay of overlays) overlay.update();
    say();
  });
}

/** @param {HTMLTableRowElement} item */
function follow(item) {
  const number = Number(item.dataset.run);
  /** @type {Row} */
  const run = { row: item, ink: colour(item, '--run-color'), start: 0, shape: new Curves(), curves: new Map(), metrics: [], reload: () => {} };
  const place = shown.push(run) - 1;
  for (const [event, which] of /** @type {[string, number | null][]} */ ([['pointerenter', place], ['pointerleave', null], ['focusin', place], ['focusout', null]]))
    item.addEventListener(event, () => overlays.forEach((overlay) => overlay.focus(which)));
  run.reload = feed.follow(number, {
    points: item.dataset.points || '',
    line: () => answers.line(number),
    load: async () => {
      const answer = await answers.of(number);
      run.curves = new Map(answer.curves.map((c) => [c.name, c]));
      run.metrics = answer.metrics;
      run.shape.shape = answer.shape;
      run.start = answer.start ?? Math.min(...answer.curves.map((c) => c.times[0] ?? Infinity));
      schedule();
      return answer.seq;
    },
    add: (points) => {
      let long = false;
      for (const [group, name, step, t, value] of points) {
        const curve = run.curves.get(`${group} ${name}`);
        if (!curve && !run.metrics.includes(`${group} ${name}`)) return true; // a curve that is new: fetch them all
        if (!curve) continue; // nobody looks at it
        if (curve.steps.length && step <= curve.steps[curve.steps.length - 1]) continue;
        curve.steps.push(step);
        curve.times.push(t);
        curve.values.push(value);
        long ||= curve.steps.length > MOST_POINTS;
      }
      schedule();
      return long;
    },
  });
}

/** Drawn anew whenever the table, which brings the data, has been. What stands below the curves is loaded after them. @param {HTMLElement} list */
function coordinates(list) {
  const runs = [...list.querySelectorAll('tr[data-run]')].map((item) => ({ id: Number(item.getAttribute('data-run')), name: item.getAttribute('data-name') || '' }));
  const element = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
  const select = (/** @type {string} */ id) => /** @type {HTMLSelectElement} */ (element(id));
  const groups = new Groups(select('group-by'), choice, () => overlays.length && draw(overlays.map((overlay) => overlay.metric)));
  /** @type {{show: (axes: any[]) => void}[]} */
  const shown = [groups];
  let known = '';
  /** @type {any[]} */
  let axes = [];
  const renew = () => {
    const data = document.getElementById('parallel-data')?.dataset.axes || '[]';
    if (data === known) return;
    axes = JSON.parse((known = data));
    for (const each of shown) each.show(axes);
  };
  document.addEventListener('htmx:after:swap', renew);
  renew();
  /** @param {{show: (axes: any[]) => void}} each */
  const add = (each) => {
    shown.push(each);
    each.show(axes);
  };
  import('./parallel.js').then(({ Parallel }) => add(new Parallel(element('parallel'), element('parallel-said'), element('parallel-all'), runs)));
  import('./scatter.js').then(({ Scatter }) => add(new Scatter(element('scatter'), select('across'), select('up'), runs)));
}

/** Rows that are the same for all can be left out. */
function differences() {
  const only = /** @type {HTMLInputElement} */ (document.getElementById('only-differences'));
  const show = () => document.getElementById('table')?.classList.toggle('only-differences', only.checked);
  only.checked = kept('only') === '1';
  only.addEventListener('change', () => {
    keep({ only: only.checked ? 1 : null });
    show();
  });
  show();
}

/** A baseline is a page of its own, with all that was chosen on this one. */
document.addEventListener('click', (event) => {
  const link = /** @type {HTMLAnchorElement | null} */ (/** @type {Element} */ (event.target).closest('a[data-baseline]'));
  if (!link) return;
  const address = new URL(location.href);
  if (link.dataset.baseline) address.searchParams.set('baseline', link.dataset.baseline);
  else address.searchParams.delete('baseline');
  link.href = address.href;
});

/** What is ticked among the runs that were found joins the chosen ones: the next search does not take it away. */
document.getElementById('others')?.addEventListener('change', (event) => {
  const box = /** @type {HTMLInputElement} */ (event.target);
  const list = document.getElementById('chosen');
  if (!box.checked || !list) return;
  list.append(/** @type {Element} */ (box.closest('label')));
  box.focus();
});

/** @param {string} attribute @param {(button: Element) => boolean} pressed @param {(button: Element) => void} press */
function buttons(attribute, pressed, press) {
  const all = [.../** @type {HTMLElement} */ (host).querySelectorAll(`[${attribute}]`)];
  const show = () => all.forEach((button) => button.setAttribute('aria-pressed', String(pressed(button))));
  for (const button of all)
    button.addEventListener('click', () => {
      press(button);
      show();
      draw(overlays.map((overlay) => overlay.metric));
    });
  show();
}

if (host) {
  for (const item of host.querySelectorAll('tr[data-run]')) follow(/** @type {HTMLTableRowElement} */ (item));
  const smoothing = /** @type {HTMLInputElement} */ (document.getElementById('smoothing'));
  smoothing.value = String(choice.weight);
  smoothing.addEventListener('input', () => {
    choice.weight = Number(smoothing.value);
    keep({ smooth: choice.weight || null });
    schedule();
  });
  buttons('data-axis', (button) => button.getAttribute('data-axis') === choice.axis, (button) => keep({ axis: (choice.axis = button.getAttribute('data-axis') || 'step') }));
  buttons('data-scale', () => choice.logarithmic, () => keep({ scale: (choice.logarithmic = !choice.logarithmic) ? 'log' : null }));
  coordinates(host);
  differences();
  document.addEventListener('theme', () => {
    for (const run of shown) run.ink = colour(run.row, '--run-color');
    draw(overlays.map((overlay) => overlay.metric));
  });
}
