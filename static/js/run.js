// @ts-check
/* The Monitor tab: curves of a run, live. The server gives whole curves (down-sampled) up to a journal line; the socket brings what follows.
   A gap in the sequence is fetched, a point that came twice is dropped. Zoom and smoothing are the reader's and survive every update. */

import { axes, colour, elapsed, figure, fit, markPlugin, plainX, smooth } from './chart.js';
import * as feed from './points.js';

/** @typedef {{steps: number[], times: number[], values: (number | null)[]}} Curve */
/** @typedef {{chart: any, box: HTMLElement, text: HTMLElement, release: () => void}} Drawn */

const HEIGHT = 240;
const WORKERS_HEIGHT = 110;
const MOST_POINTS = 6000; // of one curve, before the server is asked for a down-sampled one again
const FIRST = ['loss', 'accuracy'];

const section = /** @type {HTMLElement} */ (document.querySelector('[data-charts]'));
const list = /** @type {HTMLElement} */ (document.getElementById('chart-list'));
const unzoom = /** @type {HTMLElement} */ (document.getElementById('unzoom'));
const run = Number(section.dataset.charts);

/** @type {Map<string, {train?: Curve, test?: Curve}>} */
let curves = new Map();
/** @type {any[]} */
let marks = [];
/** @type {Map<string, Drawn>} */
const drawn = new Map();
let axis = localStorage.getItem('edt-axis') === 'time' ? 'time' : 'step';
let weight = 0;
/** @type {[number, number] | null} */
let zoom = null;
let pending = 0;
let applying = false;

async function load() {
  const response = await fetch(`${section.dataset.series}?max=1500`, { headers: { Accept: 'application/json' } });
  if (!response.ok) throw new Error(`curves: ${response.status}`);
  const answer = await response.json();
  curves = new Map();
  for (const curve of answer.curves) {
    const both = curves.get(curve.name) || {};
    both[/** @type {'train' | 'test'} */ (curve.group)] = { steps: curve.steps, times: curve.times, values: curve.values };
    curves.set(curve.name, both);
  }
  marks = answer.marks;
  schedule();
  return answer.seq;
}

/** @param {any[]} points */
function add(points) {
  let long = false;
  for (const [group, name, step, t, value] of points) {
    const both = curves.get(name) || {};
    curves.set(name, both);
    const curve = both[/** @type {'train' | 'test'} */ (group)] || { steps: [], times: [], values: [] };
    both[/** @type {'train' | 'test'} */ (group)] = curve;
    if (curve.steps.length && step <= curve.steps[curve.steps.length - 1]) continue; // redone after a death: the first one stands
    curve.steps.push(step);
    curve.times.push(t);
    curve.values.push(value);
    long ||= curve.steps.length > MOST_POINTS;
  }
  schedule();
  return long;
}

function schedule() {
  if (!pending) pending = requestAnimationFrame(() => ((pending = 0), draw()));
}

function names() {
  const found = [...curves.keys()];
  return [...FIRST.filter((n) => curves.has(n)), ...found.filter((n) => !FIRST.includes(n)).sort()];
}

function start() {
  let first = Infinity;
  for (const both of curves.values()) for (const c of Object.values(both)) if (c.times.length) first = Math.min(first, c.times[0]);
  return first;
}

function draw() {
  const empty = document.getElementById('no-points');
  if (empty) empty.hidden = curves.size > 0;
  for (const name of names()) {
    if (!drawn.has(name)) place(name);
    const one = drawn.get(name);
    if (one && one.chart) update(name, one);
  }
  if (curves.size) workers();
}

/** A figure whose chart is made when it comes into view: a run with fifty metrics costs no more than what is looked at. @param {string} name */
function place(name) {
  const box = document.createElement('figure');
  box.className = 'chart';
  const caption = document.createElement('figcaption');
  const title = document.createElement('b');
  title.textContent = name;
  const text = document.createElement('span');
  text.className = 'quiet numbers';
  caption.append(title, ' ', text);
  const body = document.createElement('div');
  body.className = 'chart-body';
  box.append(caption, body);
  const before = drawn.get('\0workers');
  list.insertBefore(box, before && FIRST.includes(name) ? before.box : null);
  const one = { chart: null, box: body, text, release: () => {} };
  drawn.set(name, one);
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((e) => e.isIntersecting)) return;
    observer.disconnect();
    make(name, one);
  }, { rootMargin: '200px' }).observe(box);
}

/** @param {string} name */
function data(name) {
  const both = curves.get(name) || {};
  const tables = [];
  for (const group of /** @type {const} */ (['train', 'test'])) {
    const curve = both[group];
    const xs = curve ? (axis === 'step' ? curve.steps : curve.times) : [];
    const ys = curve ? curve.values : [];
    tables.push(group === 'train' ? [xs, ys, smooth(ys, weight)] : [xs, ys]);
  }
  const full = tables.filter((t) => t[0].length);
  if (full.length === 2) return window.uPlot.join(full);
  const only = full[0] || [[]];
  return both.train ? [only[0], only[1] || [], only[2] || [], only[0].map(() => undefined)] : [only[0], [], [], only[1] || []].map((c, i) => (i === 1 || i === 2 ? only[0].map(() => undefined) : c));
}

function markers() {
  return marks.filter((m) => m.before).map((m) => ({ at: axis === 'step' ? m.step : m.t, label: `${m.before}→${m.workers}`, title: m.reason }));
}

/** @param {string} name @param {any} one */
function make(name, one) {
  const ink = colour(section, '--run-color');
  const other = colour(section, '--text-primary');
  const options = {
    width: one.box.clientWidth || 400,
    height: HEIGHT,
    cursor: { sync: { key: 'run', scales: ['x', null] }, drag: { x: true, y: false, setScale: true } },
    legend: { show: false },
    scales: { x: plainX },
    axes: axes(section, axis === 'time' ? (v) => elapsed(start())(v) : undefined),
    series: [
      {},
      { label: 'train', stroke: ink, alpha: weight ? 0.3 : 1, width: 1.5, points: { show: few } },
      { label: 'train, smoothed', stroke: ink, width: 2, show: weight > 0, points: { show: false } },
      { label: 'test', stroke: other, width: 1.5, dash: [6, 4], spanGaps: true, points: { show: true, size: 6, fill: other } },
    ],
    plugins: [markPlugin(markers, section)],
    hooks: { setScale: [scaled], setCursor: [(/** @type {any} */ u) => said(name, one, u.cursor.idx)] },
  };
  one.chart = new window.uPlot(options, data(name), one.box);
  one.release = fit(one.chart, one.box, HEIGHT);
  if (zoom) one.chart.setScale('x', { min: zoom[0], max: zoom[1] });
  said(name, one, null);
}

/** Single points would vanish: show them while there are few. @param {any} u @param {number} i */
function few(u, i) {
  return u.data[i].length < 40;
}

/** The range that shows every point. Never empty: uPlot cannot divide a range of nothing into ticks. @param {number[]} xs */
const whole = (xs) => ({ min: xs[0], max: Math.max(xs[xs.length - 1], xs[0] + 1) });

/** One zoom for all charts of the page. @param {any} u @param {string} key */
function scaled(u, key) {
  if (key !== 'x' || applying) return;
  const xs = u.data[0];
  const { min, max } = u.scales.x;
  if (!xs.length || min === undefined || min === null) return;
  const all = min <= xs[0] && max >= xs[xs.length - 1];
  zoom = all ? null : [min, max];
  unzoom.hidden = all;
  applyZoom(u);
}

/** @param {any} except */
function applyZoom(except) {
  applying = true;
  for (const one of drawn.values()) {
    if (!one.chart || one.chart === except) continue;
    const xs = one.chart.data[0];
    if (zoom) one.chart.setScale('x', { min: zoom[0], max: zoom[1] });
    else if (xs.length) one.chart.setScale('x', whole(xs));
  }
  applying = false;
}

/** @param {string} name @param {Drawn} one */
function update(name, one) {
  applying = true;
  const values = data(name);
  one.chart.setData(values, false);
  const xs = values[0];
  if (zoom) one.chart.setScale('x', { min: zoom[0], max: zoom[1] });
  else if (xs.length) one.chart.setScale('x', whole(xs));
  applying = false;
  said(name, one, one.chart.cursor.idx);
}

/** The chart's words: the values under the cursor, else the last ones. @param {string} name @param {any} one @param {number | null | undefined} index */
function said(name, one, index) {
  const both = curves.get(name) || {};
  if (index !== null && index !== undefined && one.chart) {
    const d = one.chart.data;
    const x = axis === 'step' ? `step ${d[0][index]}` : elapsed(start())([d[0][index]])[0];
    const parts = [x];
    if (d[1][index] !== undefined) parts.push(`train ${figure(d[1][index])}`);
    if (d[3]?.[index] !== undefined) parts.push(`test ${figure(d[3][index])}`);
    one.text.textContent = parts.join(' · ');
    return;
  }
  const parts = [];
  for (const group of /** @type {const} */ (['train', 'test'])) {
    const curve = both[group];
    if (curve?.values.length) parts.push(`${group} ${figure(curve.values[curve.values.length - 1])}`);
  }
  one.text.textContent = parts.join(' · ');
}

/** Workers over time, on the same axis: a step line from the changes of members to the last point. */
function workers() {
  if (!marks.length) return;
  const key = '\0workers';
  if (!drawn.has(key)) {
    const box = document.createElement('figure');
    box.className = 'chart chart-wide';
    box.innerHTML = '<figcaption><b>Workers</b> <span class="quiet numbers"></span></figcaption><div class="chart-body"></div>';
    list.append(box);
    const body = /** @type {HTMLElement} */ (box.querySelector('.chart-body'));
    const text = /** @type {HTMLElement} */ (box.querySelector('span'));
    const one = { chart: null, box: body, text, release: () => {} };
    drawn.set(key, one);
    one.chart = new window.uPlot(workerOptions(body), workerData(), body);
    one.release = fit(one.chart, body, WORKERS_HEIGHT);
  }
  const one = /** @type {any} */ (drawn.get(key));
  applying = true;
  const values = workerData();
  one.chart.setData(values, false);
  const xs = values[0];
  one.chart.setScale('x', zoom ? { min: zoom[0], max: zoom[1] } : whole(xs));
  applying = false;
  one.text.textContent = `now ${marks[marks.length - 1].workers}`;
}

function workerData() {
  const xs = marks.map((m) => (axis === 'step' ? m.step : m.t));
  const ys = marks.map((m) => m.workers);
  let last = xs[xs.length - 1];
  let first = xs[0];
  for (const both of curves.values()) {
    for (const c of Object.values(both)) {
      const at = axis === 'step' ? c.steps : c.times;
      if (at.length) [first, last] = [Math.min(first, at[0]), Math.max(last, at[at.length - 1])];
    }
  }
  return [[...xs, last], [...ys, ys[ys.length - 1]]];
}

/** @param {HTMLElement} body */
function workerOptions(body) {
  const ink = colour(section, '--run-color');
  const [x, y] = axes(section, axis === 'time' ? (v) => elapsed(start())(v) : undefined);
  return {
    width: body.clientWidth || 400,
    height: WORKERS_HEIGHT,
    cursor: { sync: { key: 'run', scales: ['x', null] }, drag: { x: true, y: false, setScale: true } },
    legend: { show: false },
    scales: { x: plainX, y: { range: (/** @type {any} */ _u, /** @type {number} */ _min, /** @type {number} */ max) => [0, Math.max(1, max || 0) * 1.15] } },
    axes: [x, { ...y, space: 18, incrs: [1, 2, 4, 8, 16, 32, 64, 128, 256] }],
    series: [{}, { label: 'workers', stroke: ink, fill: `color-mix(in srgb, ${ink} 18%, transparent)`, width: 2, paths: window.uPlot.paths.stepped({ align: 1 }), points: { show: false } }],
    plugins: [markPlugin(markers, section)],
    hooks: { setScale: [scaled] },
  };
}

function redraw() {
  for (const one of drawn.values()) {
    one.release();
    one.chart?.destroy();
    one.chart = null;
  }
  for (const [name, one] of drawn) {
    if (name === '\0workers') {
      one.chart = new window.uPlot(workerOptions(one.box), workerData(), one.box);
      one.release = fit(one.chart, one.box, WORKERS_HEIGHT);
    } else make(name, one);
  }
  schedule();
}

function controls() {
  for (const button of document.querySelectorAll('[data-axis]')) {
    button.setAttribute('aria-pressed', String(button.getAttribute('data-axis') === axis));
    button.addEventListener('click', () => {
      axis = button.getAttribute('data-axis') || 'step';
      localStorage.setItem('edt-axis', axis);
      for (const each of document.querySelectorAll('[data-axis]')) each.setAttribute('aria-pressed', String(each === button));
      zoom = null;
      unzoom.hidden = true;
      redraw();
    });
  }
  document.getElementById('smoothing')?.addEventListener('input', (event) => {
    weight = Number(/** @type {HTMLInputElement} */ (event.target).value);
    redraw();
  });
  unzoom.addEventListener('click', () => {
    zoom = null;
    unzoom.hidden = true;
    applyZoom(null);
  });
  document.addEventListener('theme', redraw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
}

controls();
feed.follow(run, {
  load,
  points: section.dataset.points || '',
  add,
  progress: (p) => feed.showProgress(/** @type {Element} */ (document.querySelector(`[data-run="${run}"]`)), p),
  changed: (what) => what.some((w) => ['generation', 'generations', 'members', 'slots', 'state'].includes(w)),
});
