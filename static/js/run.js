// @ts-check
/* The Monitor tab: curves of a run, live. The server gives whole curves (down-sampled) up to a journal line; the socket brings what follows.
   Axis, smoothing, scale and zoom are the reader's: they survive every update, and the address keeps them. */

import { alerts } from './alerts.js';
import { alone, axes, blank, colour, elapsed, few, figure, fit, markPlugin, nearest, plainX, smooth, sparse, wholeNumbers } from './chart.js';
import { Curves } from './curves.js';
import { keep, kept } from './kept.js';
import * as live from './live.js';
import * as feed from './points.js';
import { SlotChoice } from './slotchoice.js';
import { memoryOptions, memoryWords, readings, shareOptions, shareWords, Use } from './use.js';

/** @typedef {{chart: any, box: HTMLElement, text: HTMLElement, release: () => void, make: () => any, data: () => any[], words: (index: number | null | undefined) => string, height: number, log: boolean}} Drawn */

const HEIGHT = 240;
const LOW_HEIGHT = 110;
const FINER_MS = 250;
const VALUES_MS = 5000; // the table of last values is fetched anew at most so often while points come
const MOST_POINTS = 6000; // of one curve, before the server is asked for a down-sampled one again
const WORKERS = '\0workers';
const RATES = '\0rates';
const BUSY = '\0busy';
const MEMORY = '\0memory';

const section = /** @type {HTMLElement} */ (document.querySelector('[data-charts]'));
const list = /** @type {HTMLElement} */ (document.getElementById('chart-list'));
const unzoom = /** @type {HTMLElement} */ (document.getElementById('unzoom'));
const run = Number(section.dataset.charts);
const table = /** @type {HTMLDetailsElement} */ (document.getElementById('use-table'));

const curves = new Curves();
const use = new Use(section.dataset.use || '', curves);
const choice = new SlotChoice(
  /** @type {HTMLElement} */ (document.getElementById('use-slots')),
  /** @type {HTMLInputElement} */ (document.getElementById('use-chosen')),
  use,
  () => void fetchUse(),
);
/** The low charts: their place on the page, their title, and what they draw. @typedef {{key: string, title: string, make: () => any, data: () => any[], words: (index: number | null | undefined) => string}} Low */
/** @type {Map<string, Low>} */
const lows = new Map([
  [WORKERS, { key: ':workers', title: 'Workers', make: workerOptions, data: () => curves.workers(axis), words: workerWords }],
  [RATES, { key: ':rates', title: 'Steps/s', make: rateOptions, data: () => curves.rates(axis), words: rateWords }],
  [BUSY, { key: ':busy', title: 'Utilization', make: () => ({ ...shareOptions(common(() => drawn.get(BUSY)), section, use), height: LOW_HEIGHT }), data: () => use.share(axis), words: (index) => useWords(shareWords, use.share(axis), index) }],
  [MEMORY, { key: ':memory', title: 'Memory', make: () => ({ ...memoryOptions(common(() => drawn.get(MEMORY)), section, use), height: LOW_HEIGHT }), data: () => use.memory(axis), words: (index) => useWords(memoryWords, use.memory(axis), index) }],
]);
/** @type {Map<string, Drawn>} */
const drawn = new Map();
let axis = /** @type {import('./curves.js').Axis} */ (['step', 'time', 'samples'].find((a) => a === kept('axis', localStorage.getItem('edt-axis') || '')) || 'step');
let weight = Math.min(0.95, Math.max(0, Number(kept('smooth', '0')) || 0));
let logarithmic = kept('scale') === 'log';
/** @type {[number, number] | null} */
let zoom = range(kept('zoom'));
let pending = 0;
let waiting = 0;
let stale = 0;
let reached = -1; // the journal line that the curves were last fetched up to
let applying = false;

/** "12~40" as a range; null for anything else. @param {string} text @returns {[number, number] | null} */
function range(text) {
  const [from, to] = text.split('~').map(Number);
  return text.includes('~') && from < to ? [from, to] : null;
}

async function load() {
  const response = await fetch(`${section.dataset.series}?max=1500`, { headers: { Accept: 'application/json' } });
  if (!response.ok) throw new Error(`curves: ${response.status}`);
  const answer = await response.json();
  curves.take(answer);
  schedule();
  finer();
  if (reached >= 0 && answer.seq > reached) later(); // points that came while it was on its way are in it, and nobody adds them
  return (reached = answer.seq);
}

/** A zoom into a long run asks for more points of what it shows, once the reader's hand is still. */
function finer() {
  clearTimeout(waiting);
  if (!zoom || !curves.thinned) return;
  const wanted = zoom;
  waiting = window.setTimeout(async () => {
    const steps = curves.steps(wanted, axis);
    const response = await fetch(`${section.dataset.series}?max=1500&from=${steps[0]}&to=${steps[1]}`, { headers: { Accept: 'application/json' } });
    if (!response.ok || zoom !== wanted) return;
    curves.refine(await response.json(), steps);
    schedule();
  }, FINER_MS);
}

function schedule() {
  if (!pending) pending = requestAnimationFrame(() => ((pending = 0), draw()));
}

function names() {
  const first = curves.first();
  return [...first, ...[...curves.byName.keys()].filter((name) => !first.includes(name)).sort()];
}

function draw() {
  const empty = document.getElementById('no-points');
  if (empty) empty.hidden = curves.byName.size > 0;
  const wanted = curves.byName.size ? names() : [];
  if (wanted.length && curves.marks.length) wanted.push(...(section.dataset.fixed === undefined ? [WORKERS, RATES] : [RATES]));
  if (use.hasShare()) wanted.push(BUSY);
  if (use.hasMemory()) wanted.push(MEMORY);
  choice.show();
  for (const name of wanted) {
    if (!drawn.has(name)) place(name);
    const one = /** @type {Drawn} */ (drawn.get(name));
    if (one.chart) update(one);
  }
}

/** A figure whose chart is made when it comes into view: a run with fifty metrics costs no more than what is looked at. @param {string} name */
function place(name) {
  const low = lows.get(name);
  const box = figureFor(name, low);
  const one = /** @type {Drawn} */ ({
    chart: null,
    box: box.querySelector('.chart-body'),
    text: box.querySelector('figcaption span'),
    release: () => {},
    height: low ? LOW_HEIGHT : HEIGHT,
  });
  if (low) Object.assign(one, { make: low.make, data: low.data, words: low.words });
  else Object.assign(one, { make: () => metricOptions(name), data: () => metricData(name), words: (/** @type {any} */ i) => metricWords(name, one, i) });
  drawn.set(name, one);
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((e) => e.isIntersecting)) return;
    observer.disconnect();
    if (!one.chart) make(one);
  }, { rootMargin: '200px' }).observe(box);
}

/** The figure that the page came with, which keeps its place free, or a new one. @param {string} name @param {Low | undefined} low */
function figureFor(name, low) {
  const key = low ? low.key : name;
  const there = [...list.querySelectorAll('[data-chart]')].find((each) => each.getAttribute('data-chart') === key);
  if (there) return /** @type {HTMLElement} */ (there);
  const box = document.createElement('figure');
  box.className = low ? 'chart chart-low' : 'chart';
  box.dataset.chart = key;
  const caption = document.createElement('figcaption');
  const title = document.createElement('b');
  title.append(Object.assign(document.createElement('bdi'), { textContent: low ? low.title : name }));
  caption.append(title, ' ', Object.assign(document.createElement('span'), { className: 'quiet numbers' }));
  box.append(caption, Object.assign(document.createElement('div'), { className: 'chart-body' }));
  let row = list.querySelector('.chart-lows');
  if (low && !row) list.insertBefore((row = Object.assign(document.createElement('div'), { className: 'chart-lows' })), document.getElementById('use-slots'));
  if (low) row?.append(box);
  else list.insertBefore(box, curves.first().includes(name) ? row || document.getElementById('use-slots') : null);
  return box;
}

/** @param {Drawn} one */
function make(one) {
  one.chart = new window.uPlot(one.make(), one.data(), one.box);
  one.release = fit(one.chart, one.box, one.height);
  update(one);
}

/** @param {string} name */
function metricData(name) {
  const both = curves.byName.get(name) || {};
  const train = both.train && [curves.xs(both.train, axis), both.train.values, smooth(both.train.values, weight)];
  const test = both.test && [curves.xs(both.test, axis), both.test.values];
  if (train && test) return window.uPlot.join([train, test]);
  const xs = (train || test || [[]])[0];
  const none = xs.map(() => undefined);
  return train ? [xs, train[1], train[2], none] : [xs, none, none, test ? test[1] : none];
}

/** @param {string} name */
function metricOptions(name) {
  const ink = colour(section, '--run-color');
  const other = colour(section, '--text-primary');
  const both = curves.byName.get(name) || {};
  const positive = Object.values(both).every((curve) => curve.values.every((v) => v === null || v > 0));
  return {
    ...common(() => drawn.get(name), name),
    height: HEIGHT,
    scales: { x: plainX, y: logarithmic && positive ? { distr: 3 } : {} },
    series: [
      {},
      { label: 'train', stroke: ink, alpha: weight ? 0.3 : 1, width: 1.5, points: { show: few, filter: alone } },
      { label: 'train, smoothed', stroke: ink, width: 2, show: weight > 0, points: { show: false } },
      { label: 'test', stroke: other, width: 1.5, dash: [6, 4], spanGaps: true, points: { show: sparse, filter: alone, size: 6, fill: other } },
    ],
  };
}

function workerOptions() {
  const ink = colour(section, '--run-color');
  const shared = common(() => drawn.get(WORKERS));
  const [x, y] = shared.axes;
  return {
    ...shared,
    height: LOW_HEIGHT,
    scales: { x: plainX, y: { range: () => [0, Math.max(1, ...curves.marks.map((m) => m.workers)) * 1.15] } },
    axes: [x, { ...y, space: 18, incrs: wholeNumbers }],
    series: [{}, { label: 'workers', stroke: ink, fill: `color-mix(in srgb, ${ink} 18%, transparent)`, width: 2, paths: window.uPlot.paths.stepped({ align: 1 }), points: { show: (/** @type {any} */ u) => u.data[0][0] === u.data[0].at(-1) } }],
  };
}

function rateOptions() {
  const shared = common(() => drawn.get(RATES));
  const [x, y] = shared.axes;
  return {
    ...shared,
    height: LOW_HEIGHT,
    scales: { x: plainX, y: { range: (/** @type {any} */ _u, /** @type {number} */ _min, /** @type {number} */ max) => [0, (max || 1) * 1.15] } },
    axes: [x, { ...y, space: 18 }],
    series: [{}, { label: 'steps/s', stroke: colour(section, '--run-color'), width: 1.5, points: { show: false, filter: alone } }],
  };
}

/** What all charts of the page share. @param {() => Drawn | undefined} self @param {string} [metric] whose alerts are marked */
function common(self, metric) {
  const marks = () => [...curves.changes(axis), ...(metric ? alerts(metric, curves, axis) : [])];
  const labels = axis === 'time' ? (/** @type {number[]} */ v) => elapsed(curves.start())(v) : (/** @type {number[]} */ v) => v.map((n) => n.toLocaleString('en'));
  const [x, y] = axes(section, labels);
  const say = (/** @type {any} */ u) => {
    const one = self();
    if (one) one.text.textContent = nearest(u, marks()) || one.words(u.cursor.idx);
  };
  return {
    width: section.clientWidth || 400,
    cursor: { sync: { key: 'run', scales: ['x', null] }, drag: { x: true, y: false, setScale: true } },
    legend: { show: false },
    axes: [axis === 'time' ? x : { ...x, incrs: wholeNumbers }, y],
    plugins: [markPlugin(marks, section)],
    hooks: { setScale: [scaled], setCursor: [say] },
  };
}

/** The range that shows every point. Never empty: uPlot cannot divide a range of nothing into ticks. @param {number[]} xs */
const whole = (xs) => ({ min: xs[0], max: Math.max(xs[xs.length - 1], xs[0] + 1) });

/** One zoom for all charts of the page. @param {any} u @param {string} key */
function scaled(u, key) {
  if (key !== 'x' || applying) return;
  const xs = u.data[0];
  const { min, max } = u.scales.x;
  if (!xs.length || min === undefined || min === null) return;
  setZoom(min <= xs[0] && max >= xs[xs.length - 1] ? null : [min, max], u);
}

/** @param {[number, number] | null} wanted @param {any} [from] the chart that has it already */
function setZoom(wanted, from) {
  zoom = wanted;
  unzoom.hidden = !zoom;
  keep({ zoom: zoom && zoom.map((n) => Number(n.toPrecision(12))).join('~') });
  applying = true;
  for (const one of drawn.values()) if (one.chart && one.chart !== from) show(one);
  applying = false;
  finer();
}

/** @param {Drawn} one */
function show(one) {
  const xs = one.chart.data[0];
  if (zoom) one.chart.setScale('x', { min: zoom[0], max: zoom[1] });
  else if (xs.length) one.chart.setScale('x', whole(xs));
}

/** @param {Drawn} one */
function update(one) {
  applying = true;
  one.chart.setData(one.data(), false);
  one.box.classList.toggle('is-empty', blank(one.chart.data));
  show(one);
  applying = false;
  one.text.textContent = one.words(one.chart.cursor.idx);
}

/** @param {number} x */
const at = (x) => (axis === 'time' ? elapsed(curves.start())([x])[0] : `${axis === 'step' ? 'step' : 'sample'} ${Math.round(x).toLocaleString('en')}`);

/** The chart's words: the values under the cursor, else the last ones. @param {string} name @param {Drawn} one @param {number | null | undefined} index */
function metricWords(name, one, index) {
  const d = one.chart?.data;
  const parts = [];
  if (d && index !== null && index !== undefined) {
    parts.push(at(d[0][index]));
    if (d[1][index] !== undefined) parts.push(`train ${figure(d[1][index])}`);
    if (d[3]?.[index] !== undefined) parts.push(`test ${figure(d[3][index])}`);
    return parts.join(' · ');
  }
  const both = curves.byName.get(name) || {};
  for (const group of /** @type {const} */ (['train', 'test'])) {
    const values = both[group]?.values;
    if (values?.length) parts.push(`${group} ${figure(values[values.length - 1])}`);
  }
  return parts.join(' · ');
}

const tiles = () => document.querySelector(`[data-run="${run}"]`);
/** @param {number | null | undefined} index */
function workerWords(index) {
  const [xs, ys] = curves.workers(axis);
  return index === null || index === undefined || xs[index] === undefined ? `${ys[ys.length - 1] ?? 0} ${section.dataset.liveRun === 'yes' ? (tiles()?.getAttribute('data-state') === 'running' ? 'now' : 'at its last step') : 'at the end'}` : `${at(xs[index])} · ${ys[index]}`;
}

/** @param {number | null | undefined} index */
function rateWords(index) {
  const [xs, ys] = curves.rates(axis);
  const place = index === null || index === undefined ? ys.length - 1 : index;
  if (!xs.length) return 'known from the second step on';
  if (ys[place] === undefined || ys[place] === null) return '';
  const samples = curves.shape.batch ? ` · ${figure(ys[place] * curves.shape.batch)} samples a second` : '';
  return `${index === null || index === undefined ? '' : `${at(xs[place])} · `}${figure(ys[place])}${samples}`;
}

/** The legend speaks of the same place as the chart under the cursor. @param {typeof shareWords} say @param {any[][]} data @param {number | null | undefined} index */
function useWords(say, data, index) {
  choice.read(readings(use.share(axis), use.memory(axis), index));
  return say(data, index, at);
}

async function fetchUse() {
  const before = String(use.chosen);
  const fresh = await use.fetch();
  choice.show();
  if (String(use.chosen) !== before) {
    redraw([BUSY, MEMORY]);
    if (table.open) live.refresh(/** @type {Element} */ (document.getElementById('use')));
  }
  if (fresh) {
    table.hidden = false;
    schedule();
  }
}

/** The table must not say other last values than the charts above it. */
function later() {
  stale ||= window.setTimeout(() => {
    stale = 0;
    live.refresh(/** @type {Element} */ (document.getElementById('notes')));
  }, VALUES_MS);
}

/** @param {string[]} names of charts; all where there are none */
function redraw(names = []) {
  for (const [name, one] of drawn) {
    if (!one.chart || (names.length && !names.includes(name))) continue;
    one.release();
    one.chart.destroy();
    make(one);
  }
}

/** @param {string} selector @param {(button: Element) => boolean} pressed @param {(button: Element) => void} choose */
function buttons(selector, pressed, choose) {
  const all = [...document.querySelectorAll(selector)];
  const mark = () => all.forEach((each) => each.setAttribute('aria-pressed', String(pressed(each))));
  for (const each of all) each.addEventListener('click', () => (choose(each), mark(), redraw()));
  mark();
}

function controls() {
  buttons('[data-axis]', (each) => each.getAttribute('data-axis') === axis, (each) => {
    axis = /** @type {any} */ (each.getAttribute('data-axis'));
    localStorage.setItem('edt-axis', axis);
    setZoom(null);
    keep({ axis });
  });
  buttons('[data-scale]', () => logarithmic, () => keep({ scale: (logarithmic = !logarithmic) ? 'log' : null }));
  const smoothing = /** @type {HTMLInputElement} */ (document.getElementById('smoothing'));
  smoothing.value = String(weight);
  smoothing.addEventListener('input', () => {
    weight = Number(smoothing.value);
    keep({ smooth: weight || null });
    redraw();
  });
  unzoom.hidden = !zoom;
  unzoom.addEventListener('click', () => setZoom(null));
  document.getElementById('chart-filter')?.addEventListener('input', (event) => {
    const wanted = /** @type {HTMLInputElement} */ (event.target).value.toLowerCase();
    for (const box of list.querySelectorAll('figure')) box.hidden = !box.classList.contains('chart-low') && !(box.dataset.chart || '').toLowerCase().includes(wanted);
  });
  document.addEventListener('theme', () => redraw());
  addEventListener('beforeprint', () => drawn.forEach((one) => one.chart || make(one))); // also what nobody has looked at yet
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => redraw());
}

controls();
fetchUse();
document.addEventListener('htmx:after:swap', (event) => {
  const shown = document.querySelector('#notes input[name=events]');
  if (shown instanceof HTMLInputElement) keep({ events: shown.value });
  if (/** @type {Element} */ (event.target).id === 'watches') for (const one of drawn.values()) one.chart?.redraw(false);
});
table.addEventListener('toggle', () => table.open && live.refresh(/** @type {Element} */ (document.getElementById('use'))));
live.on('changed', (message) => void (message.topic === `run-${run}` && message.what.includes('use') && fetchUse()));
live.on('completed', (message) => void (message.topic === `run-${run}` && ((section.dataset.liveRun = 'no'), schedule())));
live.on('subscribed', (message) => void (message.topics.includes(`run-${run}`) && fetchUse()));
feed.follow(run, {
  load,
  points: section.dataset.points || '',
  add: (points) => {
    const long = curves.add(points, MOST_POINTS);
    schedule();
    later();
    return long;
  },
  progress: (p) => feed.showProgress(tiles(), p),
  changed: (what) => what.some((w) => ['generation', 'generations', 'members', 'slots', 'state'].includes(w)),
});
