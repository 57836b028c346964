// @ts-check
/* A run's data as charts want it: curves by step, by time or by samples; workers over time; steps a second. No element of the page here. */

/** @typedef {{steps: number[], times: number[], values: (number | null)[]}} Curve */
/** @typedef {{batch: number | null, steps_per_epoch: number | null, samples: number | null}} Shape */
/** @typedef {'step' | 'time' | 'samples'} Axis */

const RATES = 160; // points of the throughput's curve
const MEASURES = ['loss', 'accuracy'];
const KINDS = [['loss'], ['reward', 'rewards', 'rew', 'return', 'returns'], ['acc', 'accuracy']]; // by a word in their names

export class Curves {
  constructor() {
    /** @type {Map<string, {train?: Curve, test?: Curve}>} */
    this.byName = new Map();
    /** @type {any[]} */
    this.marks = [];
    this.thinned = false; // whether the server has more points than these
    /** @type {Shape} */
    this.shape = { batch: null, steps_per_epoch: null, samples: null };
  }

  /** @param {any} answer of /runs/ID/series */
  take(answer) {
    this.byName = new Map();
    for (const curve of answer.curves) {
      const both = this.byName.get(curve.name) || {};
      both[/** @type {'train' | 'test'} */ (curve.group)] = { steps: curve.steps, times: curve.times, values: curve.values };
      this.byName.set(curve.name, both);
    }
    this.thinned = answer.curves.some((/** @type {any} */ curve) => curve.sampled);
    this.marks = answer.marks;
    this.shape = answer.shape;
  }

  /** The metrics to draw first, as the server does (first_charts). @returns {string[]} */
  first() {
    /** @type {string[]} */
    const kinds = [];
    const is = (/** @type {'train' | 'test'} */ group, /** @type {string} */ name) => Number(!!this.byName.get(name)?.[group]);
    for (const name of [...this.byName.keys()].sort((a, b) => a.length - b.length || (a < b ? -1 : 1))) {
      const words = new Set(name.toLowerCase().split(/[^a-z]+/));
      const [loss, reward, accuracy] = KINDS.map((kind) => kind.some((word) => words.has(word)));
      const measure = MEASURES.indexOf(name);
      kinds[measure >= 0 ? measure : loss ? 4 - 2 * is('test', name) : reward ? 3 : accuracy ? 6 - is('test', name) : 7] ||= name;
    }
    return kinds.slice(0, 7).filter(Boolean).slice(0, 2).sort((a, b) => is('train', b) - is('train', a));
  }

  /** The steps that a stretch of the axis covers, a point more at each side. @param {[number, number]} range @param {Axis} axis @returns {[number, number]} */
  steps(range, axis) {
    let [from, to] = [Infinity, 0];
    for (const curve of this.all()) {
      const xs = this.xs(curve, axis);
      const first = Math.max(0, xs.findIndex((x) => x >= range[0]) - 1);
      const after = xs.findIndex((x) => x > range[1]);
      from = Math.min(from, curve.steps[first]);
      to = Math.max(to, curve.steps[after < 0 ? xs.length - 1 : after]);
    }
    return [from, to];
  }

  /** Finer points of a stretch of steps in the place of those that are there. @param {any} answer of /runs/ID/series?from=&to= @param {[number, number]} steps */
  refine(answer, steps) {
    for (const finer of answer.curves) {
      const curve = this.byName.get(finer.name)?.[/** @type {'train' | 'test'} */ (finer.group)];
      if (!curve || !finer.steps.length) continue;
      const begin = curve.steps.findIndex((step) => step >= steps[0]);
      const rest = curve.steps.findIndex((step) => step > steps[1]);
      const count = (rest < 0 ? curve.steps.length : rest) - begin;
      curve.steps.splice(begin, count, ...finer.steps);
      curve.times.splice(begin, count, ...finer.times);
      curve.values.splice(begin, count, ...finer.values);
    }
  }

  /** New points; true when a curve has become so long that it should be fetched down-sampled. @param {any[]} points @param {number} most */
  add(points, most) {
    let long = false;
    for (const [group, name, step, t, value] of points) {
      const both = this.byName.get(name) || {};
      this.byName.set(name, both);
      const curve = both[/** @type {'train' | 'test'} */ (group)] || { steps: [], times: [], values: [] };
      both[/** @type {'train' | 'test'} */ (group)] = curve;
      if (curve.steps.length && step <= curve.steps[curve.steps.length - 1]) continue; // redone after a death: the first one stands
      curve.steps.push(step);
      curve.times.push(t);
      curve.values.push(value);
      long ||= curve.steps.length > most;
    }
    return long;
  }

  *all() {
    for (const both of this.byName.values()) for (const curve of Object.values(both)) if (curve.steps.length) yield curve;
  }

  /** When the first point was written, Unix seconds. */
  start() {
    let first = Infinity;
    for (const curve of this.all()) first = Math.min(first, curve.times[0]);
    return first;
  }

  /** Samples that have been trained on after a step: an epoch's last step may be smaller. @param {number} step */
  samplesAt(step) {
    const { batch, steps_per_epoch: length, samples } = this.shape;
    if (!batch) return step;
    if (!length || !samples) return step * batch;
    return Math.floor(step / length) * samples + Math.min((step % length) * batch, samples);
  }

  /** @param {Curve} curve @param {Axis} axis @returns {number[]} */
  xs(curve, axis) {
    return axis === 'time' ? curve.times : axis === 'step' ? curve.steps : curve.steps.map((step) => this.samplesAt(step));
  }

  /** @param {{step: number, t: number}} at @param {Axis} axis */
  x(at, axis) {
    return axis === 'time' ? at.t : axis === 'step' ? at.step : this.samplesAt(at.step);
  }

  /** A moment on the axis; null before the first and after the last point of the curves. @param {number} t @param {Axis} axis */
  moment(t, axis) {
    const { times, steps } = this.longest() || { times: [], steps: [] };
    if (!times.length || t < times[0] || t > times[times.length - 1]) return null;
    if (axis === 'time' || times.length === 1) return this.x({ step: steps[0], t }, axis);
    const after = Math.max(1, times.findIndex((each) => each >= t));
    const part = (t - times[after - 1]) / (times[after] - times[after - 1] || 1);
    const [from, to] = [after - 1, after].map((place) => this.x({ step: steps[place], t }, axis));
    return from + part * (to - from);
  }

  /** The training curve with the most points. @returns {Curve | null} */
  longest() {
    let longest = /** @type {Curve | null} */ (null);
    for (const both of this.byName.values()) if (both.train && both.train.steps.length > (longest?.steps.length || 0)) longest = both.train;
    return longest;
  }

  /** Resizes (not the first ones), placed on the axis. @param {Axis} axis */
  changes(axis) {
    return this.marks
      .filter((m) => m.before)
      .map((m) => ({ at: this.x(m, axis), label: `${m.before}→${m.workers}`, title: `${m.before} → ${m.workers} workers: ${m.reason}; ${cost(m)}` }));
  }

  /** The step line of workers: [xs, ys], to the last point of any curve. @param {Axis} axis @returns {[number[], number[]]} */
  workers(axis) {
    const xs = this.marks.map((m) => this.x(m, axis));
    const ys = this.marks.map((m) => m.workers);
    if (!xs.length) return [[], []];
    let last = xs[xs.length - 1];
    for (const curve of this.all()) last = Math.max(last, this.x({ step: curve.steps[curve.steps.length - 1], t: curve.times[curve.times.length - 1] }, axis));
    return [[...xs, last], [...ys, ys[ys.length - 1]]];
  }

  /** Steps a second over stretches of the longest training curve: [xs, ys]. @param {Axis} axis @returns {[number[], (number | null)[]]} */
  rates(axis) {
    const longest = this.longest();
    if (!longest) return [[], []];
    const xs = [];
    const ys = [];
    const many = Math.max(1, Math.ceil(longest.steps.length / RATES));
    for (let i = 0, j = many; j < longest.steps.length; i = j, j += many) {
      const seconds = longest.times[j] - longest.times[i];
      xs.push(this.x({ step: longest.steps[j], t: longest.times[j] }, axis));
      ys.push(seconds > 0 ? (longest.steps[j] - longest.steps[i]) / seconds : null);
    }
    return [xs, ys];
  }
}

/** What a change of members took. @param {any} mark */
const cost = (mark) => {
  if (mark.redone === null) return `${mark.pause_ms === null ? '–' : (mark.pause_ms / 1000).toFixed(1)} s until the workers were started again`;
  return `${mark.pause_ms === null ? '–' : Math.round(mark.pause_ms)} ms pause, ${mark.redone} step${mark.redone === 1 ? '' : 's'} redone`;
};
