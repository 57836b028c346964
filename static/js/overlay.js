// @ts-check
/* One metric of all the compared runs in one chart, each in its run's colour, and dashed where another has the colour already. */

import { alone, axes, elapsed, fit, plainX, smooth, wholeNumbers } from './chart.js';
import { together } from './groups.js';

const DASHES = [[], [10, 4], [3, 3], [12, 3, 3, 3]];
const MOST_DASHED = 32; // of more runs dashes tell none apart, and take a second to draw
const FEW = 60; // points of a curve that are shown as such

/** @typedef {{steps: number[], times: number[], values: (number | null)[]}} Curve */
/** @typedef {{ink: string, start: number, shape: import('./curves.js').Curves, curves: Map<string, Curve>}} Shown */
/** @typedef {{axis: string, weight: number, logarithmic: boolean, groups: (string | null)[] | null}} Choice  `groups` of each run, where those are drawn
    together; null for a run of none */

/** How each line is drawn: the first of a colour solid. @param {Shown[]} runs @returns {number[][]} */
export function dashes(runs) {
  if (runs.length > MOST_DASHED) return runs.map(() => []);
  const seen = new Map();
  return runs.map(({ ink }) => {
    const before = seen.get(ink) ?? 0;
    seen.set(ink, before + 1);
    return DASHES[before % DASHES.length];
  });
}

/** The place of the last number that is not greater; -1: there is none. @param {number[]} sorted @param {number} x */
function before(sorted, x) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

export class Overlay {
  /** @param {HTMLElement} host @param {HTMLElement} box @param {string} metric @param {Shown[]} runs @param {Choice} choice shared with others, and changed
      by who made it @param {() => void} moved called when the pointer has */
  constructor(host, box, metric, runs, choice, moved) {
    this.host = host;
    this.box = box;
    this.metric = metric;
    this.runs = runs;
    this.choice = choice;
    this.moved = moved;
    this.chart = /** @type {any} */ (null);
    this.release = () => {};
    /** @type {any[]} what is drawn of each run: its places, and its values there */
    this.tables = [];
  }

  /** @param {Shown} run @returns {[number[], (number | null | undefined)[]] | [[], []]} */
  table(run) {
    const curve = run.curves.get(this.metric);
    if (!curve) return [[], []];
    const { axis, weight } = this.choice;
    const xs = axis === 'step' ? curve.steps : axis === 'time' ? curve.times.map((t) => t - run.start) : curve.steps.map((step) => run.shape.samplesAt(step));
    return [xs, smooth(curve.values, weight)];
  }

  /** The places, and each run's values there; of runs that are drawn together, the least, the mean and the greatest of each group. */
  data() {
    this.tables = this.runs.map((run) => this.table(run));
    const joined = this.tables.length === 1 ? this.tables[0] : window.uPlot.join(this.tables);
    if (!this.choice.groups) return joined;
    return [joined[0], ...this.groups().flatMap(({ places }) => together(places.map((place) => joined[place + 1])))];
  }

  /** @returns {{name: string, places: number[]}[]} */
  groups() {
    const found = new Map();
    this.choice.groups?.forEach((name, place) => name !== null && found.set(name, [...(found.get(name) ?? []), place]));
    return [...found].map(([name, places]) => ({ name, places }));
  }

  series() {
    const dash = dashes(this.runs);
    const width = this.runs.length > MOST_DASHED ? 1 : 1.75;
    const line = (/** @type {string} */ stroke, /** @type {number[]} */ ...places) => ({ stroke, width, spanGaps: true, points: this.points(places) });
    if (!this.choice.groups) return { series: this.runs.map((run, i) => ({ ...line(run.ink, i), dash: dash[i] })), bands: [] };
    const edge = { stroke: 'transparent', width: 0, spanGaps: true, points: { show: false } };
    const groups = this.groups().map(({ places }) => ({ places, ink: this.runs[places[0]].ink }));
    const bands = groups.map(({ ink }, i) => ({ series: [3 * i + 3, 3 * i + 1], fill: `color-mix(in srgb, ${ink} 18%, transparent)` }));
    return { series: groups.flatMap(({ ink, places }) => [edge, line(ink, ...places), edge]), bands };
  }

  /** Where the curves of these runs, drawn as one line, have points: everywhere while they are few, and between two gaps, where there are any.
      @param {number[]} places */
  points(places) {
    const drawn = () => places.map((place) => this.tables[place][1]);
    return {
      show: () => drawn().reduce((count, values) => count + values.length, 0) < FEW * places.length,
      filter: (/** @type {any} */ u, /** @type {number} */ i, /** @type {boolean} */ all) => (drawn().some((values) => values.includes(null)) ? alone(u, i, all) : null),
    };
  }

  /** @param {number} height */
  build(height) {
    this.destroy();
    const { axis, logarithmic } = this.choice;
    const positive = this.runs.every((run) => (run.curves.get(this.metric)?.values ?? []).every((value) => value === null || value > 0));
    const { series, bands } = this.series();
    const options = {
      width: this.box.clientWidth || 600,
      height,
      legend: { show: false },
      focus: { alpha: 0.2 },
      cursor: { sync: { key: 'compared' } },
      scales: { x: plainX, y: logarithmic && positive ? { distr: 3 } : {} },
      axes: axes(this.host, axis === 'time' ? elapsed(0) : undefined).map((each, i) => (i === 0 && axis !== 'time' ? { ...each, incrs: wholeNumbers } : each)),
      series: [{}, ...series],
      bands,
      hooks: { setCursor: [this.moved] },
    };
    this.chart = new window.uPlot(options, this.data(), this.box);
    this.release = fit(this.chart, this.box, height);
  }

  /** With the points that have come; a part that is zoomed in on stays. */
  update() {
    const { chart } = this;
    if (!chart) return;
    const xs = chart.data[0];
    const zoomed = chart.scales.x.min !== null && xs.length && (chart.scales.x.min > xs[0] || chart.scales.x.max < xs[xs.length - 1]);
    chart.setData(this.data(), !zoomed);
  }

  /** Draw the others faint. @param {number | null} place of a run */
  focus(place) {
    this.chart?.setSeries(place === null ? null : this.seriesOf(place), { focus: true });
  }

  /** The run's own, or its group's mean. @param {number} place @returns {number | null} */
  seriesOf(place) {
    if (!this.choice.groups) return place + 1;
    const group = this.groups().findIndex(({ places }) => places.includes(place));
    return group < 0 ? null : 3 * group + 2;
  }

  /** Where the pointer is, in words; '' where it is not. */
  at() {
    const index = this.chart?.cursor.idx;
    if (index === null || index === undefined) return '';
    const x = this.chart.data[0][index];
    return this.choice.axis === 'time' ? elapsed(0)([x])[0] : `${this.choice.axis === 'step' ? 'step' : 'sample'} ${x.toLocaleString('en')}`;
  }

  /** The run's value at the pointer, or its last one before that, or the mean of its group there; without a pointer the last of all. undefined: it has none. @param {number} place */
  value(place) {
    const index = this.chart?.cursor.idx;
    if (index === null || index === undefined) return this.runs[place].curves.get(this.metric)?.values.at(-1);
    if (this.choice.groups) return this.chart.data[this.seriesOf(place) ?? -1]?.[index];
    const [xs, values] = this.tables[place];
    return values[before(xs, this.chart.data[0][index])];
  }

  destroy() {
    this.release();
    this.chart?.destroy();
    this.chart = null;
  }
}
