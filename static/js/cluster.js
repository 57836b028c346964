// @ts-check
/* The cluster page: slot lanes and the loss curves of running jobs on one clock. The window's right edge is now, or where the reader put it. */

import { alone, axes, colour, figure, fit, isolated, markPlugin, nearest } from './chart.js';
import { keep, kept } from './kept.js';
import { hasRoom, labels, Lanes, LEFT, moments, RIGHT } from './lanes.js';
import * as live from './live.js';
import * as feed from './points.js';
import { clock } from './times.js';

const WINDOWS = /** @type {Record<string, number>} */ ({ '1m': 60, '10m': 600, '1h': 3600, all: 0 });
const MOST_POINTS = 6000;
const HEIGHT = 220;
const FETCH_GAP_MS = 250;
const TABLE_GAP_MS = 500;

const box = /** @type {HTMLElement} */ (document.getElementById('lanes'));
const curves = /** @type {HTMLElement} */ (document.getElementById('cluster-curves'));
const back = /** @type {HTMLInputElement} */ (document.getElementById('scrub'));
const edge = /** @type {HTMLElement} */ (document.getElementById('edge'));
const lanes = new Lanes(box, (run) => (location.href = `/runs/${run}/`));

/** @typedef {{name: string, times: number[], values: (number | null)[], marks: any[]}} Loss */
/** @type {Map<number, Loss>} */
const losses = new Map();
let chosen = kept('window', localStorage.getItem('edt-window') || '10m');
if (!(chosen in WINDOWS)) chosen = '10m';
let until = Number(kept('until')) || 0; // the right edge that the address asks for, Unix seconds; 0: now
let skew = 0; // server's clock minus ours, seconds
let first = 0;
let chart = /** @type {any} */ (null);
let shownRuns = '';
let release = () => {};
let timer = 0;
let lastFetch = 0;
let pointing = false;

const serverNow = () => Date.now() / 1000 + skew;

/** The window shown: [begin, end] in Unix seconds. @returns {[number, number]} */
function span() {
  const now = serverNow();
  const history = Math.max(60, (now - (first || now)) * 1.02); // a window longer than the cluster's past would be mostly empty
  const seconds = Math.min(WINDOWS[chosen] || Infinity, history);
  const end = now - Number(back.value);
  return [end - seconds, end];
}

/** What was chosen, in the address: the moment itself, so that a link shows the same tomorrow. */
function remember() {
  const seconds = Number(back.value);
  keep({ window: chosen, until: seconds ? Math.round(serverNow() - seconds) : null });
  retell();
}

/** The table says the same as the lanes: it is fetched for the window that they show. */
function retell() {
  const fields = /** @type {HTMLFormElement} */ (document.getElementById('clock-fields')).elements;
  const seconds = Number(back.value);
  const wanted = /** @type {Record<string, string>} */ ({ window: chosen, until: seconds ? String(Math.round(serverNow() - seconds)) : '' });
  let differs = false;
  for (const [name, value] of Object.entries(wanted)) {
    const field = /** @type {HTMLInputElement} */ (fields.namedItem(name));
    differs = differs || field.value !== value;
    field.value = value;
  }
  const table = document.getElementById('now');
  if (differs && table) live.refresh(table, TABLE_GAP_MS);
}

/** Put the right edge `seconds` before now. @param {number} seconds */
function goBack(seconds) {
  back.value = String(Math.max(0, Math.min(Number(back.max), Math.round(seconds))));
  remember();
  tick();
  reload();
}

async function load() {
  lastFetch = Date.now();
  const response = await fetch(`${box.dataset.lanes}?window=${chosen}&back=${Math.round(Number(back.value))}`, { headers: { Accept: 'application/json' } });
  if (!response.ok) return;
  const answer = await response.json();
  skew = answer.now - Date.now() / 1000;
  first = answer.first || answer.begin;
  back.max = String(Math.max(0, Math.round(answer.now - first)));
  if (until) {
    const seconds = answer.now - until;
    until = 0;
    if (seconds > 1) return goBack(seconds); // the lanes of that moment are fetched next
  }
  lanes.show(answer);
  retell();
  for (const run of answer.curves) follow(run);
  tick();
}

/** Fetch the lanes soon, at most four times a second. */
function reload() {
  if (timer) return;
  timer = window.setTimeout(() => ((timer = 0), load().catch(() => {})), Math.max(0, lastFetch + FETCH_GAP_MS - Date.now()));
}

/** @param {number} run */
function follow(run) {
  if (losses.has(run)) return;
  /** @type {Loss} */
  const loss = { name: `run ${run}`, times: [], values: [], marks: [] };
  losses.set(run, loss);
  curves.dataset.topics = [...losses.keys()].map((id) => `run-${id}`).join(' ');
  document.dispatchEvent(new CustomEvent('htmx:after:swap')); // new topics to subscribe
  feed.follow(run, {
    points: `/runs/${run}/points`,
    load: async () => {
      const response = await fetch(`/runs/${run}/series?max=1500&x=time`, { headers: { Accept: 'application/json' } });
      const answer = await response.json();
      const found = answer.curves.find((/** @type {any} */ c) => c.group === 'train' && c.name === 'loss');
      loss.times = found?.times || [];
      loss.values = found?.values || [];
      loss.marks = answer.marks;
      loss.name = answer.name || loss.name;
      tick();
      return answer.seq;
    },
    add: (points) => {
      for (const [group, name, , t, value] of points) {
        if (group !== 'train' || name !== 'loss') continue;
        if (loss.times.length && t <= loss.times[loss.times.length - 1]) continue;
        loss.times.push(t);
        loss.values.push(value);
      }
      return loss.times.length > MOST_POINTS;
    },
    changed: (what) => what.some((w) => ['generation', 'generations', 'members', 'slots', 'state'].includes(w)),
  });
}

function drawn() {
  const [begin] = span();
  return [...losses].filter(([, loss]) => loss.times.length && loss.times[loss.times.length - 1] >= begin);
}

function marks() {
  return drawn().flatMap(([run, loss]) =>
    loss.marks.filter((m) => m.before).map((m) => ({ run, t: m.t, at: m.t, label: `${m.before}→${m.workers}`, title: `${isolated(loss.name)}: ${m.before} → ${m.workers} workers: ${m.reason}; ${Math.round(m.pause_ms ?? 0)} ms pause` })),
  );
}

function build() {
  release();
  chart?.destroy();
  const host = curves;
  const inks = drawn().map(([run]) => {
    host.className = host.className.replace(/\brun-\d+\b/g, '').trim();
    host.classList.add(`run-${run % 14}`);
    return colour(host, '--run-color');
  });
  const [x, y] = axes(host, labels);
  const wide = (/** @type {any} */ u) => u.bbox.width / (window.devicePixelRatio || 1);
  x.splits = (/** @type {any} */ u) => moments(...span(), wide(u));
  x.values = (/** @type {any} */ u, /** @type {number[]} */ found) => labels(found).map((word, i) => (hasRoom(u.valToPos(found[i], 'x'), wide(u)) ? word : ''));
  const options = {
    width: host.clientWidth || 600,
    height: HEIGHT,
    padding: [12, RIGHT, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: false, y: false, setScale: false }, focus: { prox: -1 } },
    focus: { alpha: 0.25 },
    scales: { x: { time: false, auto: false, range: (/** @type {any} */ _u) => span() } },
    axes: [x, { ...y, size: LEFT }],
    series: [{}, ...drawn().map(([, loss], i) => ({ label: loss.name, stroke: inks[i], width: 1.75, points: { show: false, filter: alone } }))],
    plugins: [markPlugin(marks, host)],
    hooks: { setCursor: [said] },
  };
  const body = /** @type {HTMLElement} */ (document.getElementById('cluster-chart'));
  chart = new window.uPlot(options, data(), body);
  release = fit(chart, body, HEIGHT);
}

function data() {
  const tables = drawn().map(([, loss]) => [loss.times, loss.values]);
  if (!tables.length) return [[]];
  return tables.length === 1 ? tables[0] : window.uPlot.join(tables, tables.map(() => [0, 1]));
}

/** @param {any} u */
function said(u) {
  const text = document.getElementById('curves-said');
  if (!text) return;
  const index = u.cursor.idx;
  if (!pointing) lanes.cursor(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, 'x') : null);
  const mark = nearest(u, marks());
  if (mark) return void (text.textContent = mark);
  const runs = drawn();
  if (index === null || index === undefined) {
    return legend(text, '', runs.map(([run, loss]) => [run, loss.name, loss.values[loss.values.length - 1]]));
  }
  const parts = runs.map(([run, loss], i) => /** @type {[number, string, any]} */ ([run, loss.name, u.data[i + 1]?.[index]]));
  legend(text, clock(new Date(u.data[0][index] * 1000)), parts.filter(([, , value]) => value !== null && value !== undefined));
}

/** A run's colour, name and value, one beside the other. @param {HTMLElement} box @param {string} at @param {[number, string, number | null][]} parts */
function legend(box, at, parts) {
  const words = [at, ...parts.flat()].join();
  if (box.dataset.said === words && box.childElementCount) return; // it is asked for four times a second
  box.dataset.said = words;
  const entries = parts.map(([run, name, value]) => {
    const entry = document.createElement('span');
    entry.append(Object.assign(document.createElement('span'), { className: `swatch run-${run % 14}` }), Object.assign(document.createElement('bdi'), { textContent: name, title: name }), figure(value));
    return entry;
  });
  box.replaceChildren(...(at ? [at] : []), ...entries);
}

/** Whose runs stand in the lanes but not among the curves, because the reader may not open them: said where other curves are shown. */
function hiddenCurves() {
  const text = document.getElementById('hidden-curves');
  if (!text) return;
  const [begin, end] = span();
  const bars = (lanes.answer?.lanes || []).flatMap((/** @type {any} */ lane) => lane.bars);
  const hidden = new Map(bars.filter((/** @type {any} */ bar) => !lanes.readable?.has(bar.run) && bar.begin <= end && (bar.end ?? end) >= begin).map((/** @type {any} */ bar) => [bar.run, bar.person]));
  const people = [...new Set(hidden.values())].sort().join(', ');
  const said = hidden.size ? `Not shown: ${hidden.size === 1 ? 'the curve of a run' : `the curves of ${hidden.size} runs`} of ${people}, in projects that you are not a member of.` : '';
  if (text.textContent !== said) text.textContent = said;
  text.hidden = !said || !drawn().length;
}

/** Everything moves with the clock. */
function tick() {
  const [begin, end] = span();
  lanes.marks = marks();
  lanes.place(begin, end);
  const runs = drawn().map(([run, loss]) => `${run}:${loss.name}`).join() + chosen;
  const none = document.getElementById('no-curves');
  if (none) none.hidden = drawn().length > 0;
  curves.classList.toggle('is-empty', !drawn().length);
  hiddenCurves();
  if (runs !== shownRuns && drawn().length) {
    shownRuns = runs;
    build();
  } else if (chart && drawn().length) {
    chart.setData(data(), true);
    if (chart.cursor.idx === null || chart.cursor.idx === undefined) said(chart);
  }
  edge.textContent = Number(back.value) ? `until ${clock(new Date(end * 1000))}` : 'now';
}

/** Redraw when the picture has moved by about half a pixel, at most four times a second. */
function beat() {
  if (!document.hidden) tick();
  const [begin, end] = span();
  const pixel = ((end - begin) / Math.max(200, box.clientWidth)) * 500;
  const slow = matchMedia('(prefers-reduced-motion: reduce)').matches ? 2000 : 250;
  setTimeout(beat, Math.min(5000, Math.max(slow, pixel)));
}

function controls() {
  for (const button of document.querySelectorAll('[data-window]')) {
    button.setAttribute('aria-pressed', String(button.getAttribute('data-window') === chosen));
    button.addEventListener('click', () => {
      chosen = button.getAttribute('data-window') || '10m';
      localStorage.setItem('edt-window', chosen);
      remember();
      for (const each of document.querySelectorAll('[data-window]')) each.setAttribute('aria-pressed', String(each === button));
      load().catch(() => {});
    });
  }
  back.addEventListener('input', () => goBack(Number(back.value)));
  document.getElementById('to-now')?.addEventListener('click', () => {
    lanes.goTo(0);
    goBack(0);
  });
  box.addEventListener('pointermove', (event) => point(event.clientX - box.getBoundingClientRect().left));
  box.addEventListener('pointerleave', () => point(-1));
  lanes.onFocus = (run) => chart?.setSeries(run === null ? null : drawn().findIndex(([id]) => id === run) + 1 || null, { focus: true });
  events();
  filter();
  document.addEventListener('theme', () => {
    shownRuns = '';
    tick();
  });
  new ResizeObserver(() => tick()).observe(box);
}

/** One clock: what the hand points at in the lanes is pointed at in the curves. @param {number} left */
function point(left) {
  const t = left < 0 ? null : lanes.moment(left);
  lanes.cursor(t);
  if (!chart) return;
  pointing = true; // the chart answers with a cursor of its own, at the nearest point
  chart.setCursor(t === null ? { left: -10, top: -10 } : { left: chart.valToPos(t, 'x'), top: 10 });
  pointing = false;
}

/** Events of the feed are places in the lanes: by a click on their time, or with the arrow keys on the lanes. */
function events() {
  const feedBox = /** @type {HTMLElement} */ (document.getElementById('feed'));
  const said = document.getElementById('event-said');
  let current = 0;
  /** @param {Element} button */
  const go = (button) => {
    current = Number(button.getAttribute('data-at'));
    lanes.goTo(current);
    const [begin, end] = span();
    if (current < begin || current > end) goBack(serverNow() - current - (end - begin) / 2);
    if (said) said.textContent = (button.closest('li')?.textContent || '').replace(/\s+/g, ' ').trim();
  };
  feedBox.addEventListener('click', (event) => {
    const button = /** @type {Element} */ (event.target).closest('[data-at]');
    if (button) go(button);
  });
  box.addEventListener('keydown', (event) => {
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
    event.preventDefault();
    const later = [...feedBox.querySelectorAll('[data-at]')]; // newest first
    const at = (/** @type {Element} */ each) => Number(each.getAttribute('data-at'));
    const next = event.key === 'ArrowLeft' ? later.find((each) => at(each) < (current || Infinity)) : later.reverse().find((each) => at(each) > current);
    if (next) go(next);
  });
}

/** The filter of the jobs is in the address too: the page that is loaded again shows the same jobs. */
function filter() {
  const form = /** @type {HTMLFormElement | null} */ (document.getElementById('job-filter'));
  form?.addEventListener('input', () => {
    const data = new FormData(form);
    keep({ name: String(data.get('name') || ''), state: String(data.get('state') || ''), offset: null });
  });
}

controls();
live.on('slots', reload);
live.on('subscribed', (message) => {
  if (message.topics.includes('cluster')) reload();
});
load().catch(() => {});
beat();
