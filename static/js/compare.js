// @ts-check
/* Compare runs: one metric of several runs in one chart, each in its run's colour, by step or by time since its own start. Live. */

import { axes, colour, elapsed, figure, fit, isolated, plainX, smooth, wholeNumbers } from './chart.js';
import { Curves } from './curves.js';
import { keep, kept } from './kept.js';
import { Parallel } from './parallel.js';
import * as feed from './points.js';

const HEIGHT = 340;
const MOST_POINTS = 6000;

const host = /** @type {HTMLElement | null} */ (document.getElementById('overlay'));
const select = /** @type {HTMLSelectElement} */ (document.getElementById('metric'));
const said = /** @type {HTMLElement} */ (document.getElementById('said'));
const plot = /** @type {HTMLElement} */ (document.getElementById('plot'));

/** @typedef {{steps: number[], times: number[], values: (number | null)[]}} Curve */
/** @typedef {{name: string, ink: string, start: number, shape: Curves, curves: Map<string, Curve>}} Shown */
/** @type {Shown[]} */
const shown = [];
let axis = ['step', 'time', 'samples'].find((a) => a === kept('axis')) || 'step';
let weight = Math.min(0.95, Math.max(0, Number(kept('smooth')) || 0));
let chart = /** @type {any} */ (null);
let release = () => {};
let pending = 0;

function metrics() {
  const found = new Set(shown.flatMap((run) => [...run.curves.keys()]));
  const first = ['test accuracy', 'test loss', 'train loss', 'train accuracy'];
  return [...first.filter((n) => found.has(n)), ...[...found].filter((n) => !first.includes(n)).sort()];
}

function fillSelect() {
  const names = metrics();
  if (names.length === select.options.length) return;
  const chosen = select.value || kept('metric');
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
}

function data() {
  const tables = shown.map((run) => {
    const curve = run.curves.get(select.value);
    if (!curve) return [[], []];
    const xs = axis === 'step' ? curve.steps : axis === 'time' ? curve.times.map((t) => t - run.start) : curve.steps.map((step) => run.shape.samplesAt(step));
    return [xs, smooth(curve.values, weight)];
  });
  return tables.length === 1 ? tables[0] : window.uPlot.join(tables);
}

function build() {
  release();
  chart?.destroy();
  const section = /** @type {HTMLElement} */ (host);
  const options = {
    width: plot.clientWidth || 600,
    height: HEIGHT,
    legend: { show: false },
    scales: { x: plainX },
    axes: axes(section, axis === 'time' ? elapsed(0) : undefined).map((each, i) => (i === 0 && axis !== 'time' ? { ...each, incrs: wholeNumbers } : each)),
    series: [{}, ...shown.map((run) => ({ label: run.name, stroke: run.ink, width: 1.75, spanGaps: true, points: { show: (/** @type {any} */ u, /** @type {number} */ i) => u.data[i].length < 60 } }))],
    hooks: { setCursor: [say] },
  };
  chart = new window.uPlot(options, data(), plot);
  release = fit(chart, plot, HEIGHT);
  say(chart);
}

/** @param {any} u */
function say(u) {
  const index = u.cursor.idx;
  if (index === null || index === undefined) {
    const last = shown.map((run) => [run.name, run.curves.get(select.value)?.values.at(-1)]);
    said.textContent = last.filter(([, v]) => v !== undefined).map(([n, v]) => `${isolated(String(n))} ${figure(/** @type {any} */ (v))}`).join(' · ') || '\u00a0';
    return;
  }
  const x = axis === 'time' ? elapsed(0)([u.data[0][index]])[0] : `${axis === 'step' ? 'step' : 'sample'} ${u.data[0][index].toLocaleString('en')}`;
  const parts = shown.map((run, i) => [run.name, u.data[i + 1]?.[index]]).filter(([, v]) => v !== null && v !== undefined);
  said.textContent = [x, ...parts.map(([n, v]) => `${isolated(n)} ${figure(v)}`)].join(' · ');
}

function schedule() {
  if (pending) return;
  pending = requestAnimationFrame(() => {
    pending = 0;
    const names = select.options.length;
    fillSelect();
    const none = !select.options.length;
    /** @type {HTMLElement} */ (document.getElementById('no-curves')).hidden = !none; // it says what to do
    /** @type {HTMLElement} */ (host).hidden = none;
    if (none) return;
    if (!chart || names === 0) build();
    else {
      chart.setData(data(), chart.scales.x.min === null || !zoomed());
      say(chart);
    }
  });
}

function zoomed() {
  const xs = chart.data[0];
  return xs.length && (chart.scales.x.min > xs[0] || chart.scales.x.max < xs[xs.length - 1]);
}

/** @param {HTMLElement} item */
function follow(item) {
  /** @type {Shown} */
  const run = { name: item.dataset.name || '', ink: colour(item, '--run-color'), start: 0, shape: new Curves(), curves: new Map() };
  shown.push(run);
  feed.follow(Number(item.dataset.run), {
    points: item.dataset.points || '',
    load: async () => {
      const response = await fetch(`${item.dataset.series}?max=1000`, { headers: { Accept: 'application/json' } });
      const answer = await response.json();
      run.curves = new Map(answer.curves.map((/** @type {any} */ c) => [`${c.group} ${c.name}`, c]));
      run.shape.shape = answer.shape;
      run.start = Math.min(...answer.curves.map((/** @type {any} */ c) => c.times[0] ?? Infinity));
      schedule();
      return answer.seq;
    },
    add: (points) => {
      let long = false;
      for (const [group, name, step, t, value] of points) {
        const curve = run.curves.get(`${group} ${name}`);
        if (!curve) return true; // a curve that is new: fetch them all
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

/** Drawn anew whenever the table, which brings the data, has been. @param {HTMLElement} list */
function coordinates(list) {
  const runs = [...list.querySelectorAll('li[data-run]')].map((item) => ({ id: Number(item.getAttribute('data-run')), name: item.getAttribute('data-name') || '' }));
  const element = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
  const drawing = new Parallel(element('parallel'), element('parallel-said'), element('parallel-all'), runs);
  let known = '';
  const draw = () => {
    const data = document.getElementById('parallel-data')?.dataset.axes || '[]';
    if (data !== known) drawing.show(JSON.parse((known = data)));
  };
  document.addEventListener('htmx:after:swap', draw);
  draw();
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

/** What is ticked among the runs that were found joins the chosen ones: the next search does not take it away. */
document.getElementById('others')?.addEventListener('change', (event) => {
  const box = /** @type {HTMLInputElement} */ (event.target);
  const list = document.getElementById('chosen');
  if (!box.checked || !list) return;
  list.append(/** @type {Element} */ (box.closest('label')));
  box.focus();
});

if (host) {
  for (const item of host.querySelectorAll('li[data-run]')) follow(/** @type {HTMLElement} */ (item));
  select.addEventListener('change', () => {
    keep({ metric: select.value });
    build();
  });
  const smoothing = /** @type {HTMLInputElement} */ (document.getElementById('smoothing'));
  smoothing.value = String(weight);
  smoothing.addEventListener('input', () => {
    weight = Number(smoothing.value);
    keep({ smooth: weight || null });
    schedule();
  });
  for (const button of host.querySelectorAll('[data-axis]')) {
    button.setAttribute('aria-pressed', String(button.getAttribute('data-axis') === axis));
    button.addEventListener('click', () => {
      axis = button.getAttribute('data-axis') || 'step';
      keep({ axis });
      for (const each of host.querySelectorAll('[data-axis]')) each.setAttribute('aria-pressed', String(each === button));
      build();
    });
  }
  coordinates(host);
  differences();
  document.addEventListener('theme', () => {
    const items = [...host.querySelectorAll('li[data-run]')];
    shown.forEach((run, i) => (run.ink = colour(items[i], '--run-color')));
    if (chart) build();
  });
}
