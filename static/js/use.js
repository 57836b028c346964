// @ts-check
/* What a run's slots did over time, as its machine says: the share of the time in which they were at work, and their memory. Fetched beside the
   curves, a few points more each time; where nothing is known there is nothing to draw. */

import { colour, plainX } from './chart.js';

/** @typedef {[number, number | null, number | null, number | null]} Point  Unix seconds, share, bytes of all slots, bytes of the largest */
/** @typedef {import('./curves.js').Axis} Axis */
/** @typedef {import('./curves.js').Curves} Curves */

const EVERY_S = 5; // SlotUse.EVERY_S
const SHARE = 1; // columns of a point
const ALL = 2;
const LARGEST = 3;

export class Use {
  /** @param {string} address @param {Curves} curves whose axis it is drawn on */
  constructor(address, curves) {
    this.address = address;
    this.curves = curves;
    /** @type {Point[]} */
    this.points = [];
    this.asking = false;
  }

  /** What is new since the last point; whether anything is. */
  async fetch() {
    if (this.asking) return false;
    this.asking = true;
    try {
      const last = this.points[this.points.length - 1];
      const response = await fetch(`${this.address}?after=${last ? Math.floor(last[0] / EVERY_S) : 0}`, { headers: { Accept: 'application/json' } });
      const fresh = response.ok ? (await response.json()).points : [];
      this.points.push(...fresh);
      return fresh.length > 0;
    } catch {
      return false; // the next word of the server asks again
    } finally {
      this.asking = false;
    }
  }

  hasShare() {
    return this.has(SHARE);
  }

  hasMemory() {
    return this.has(ALL);
  }

  /** Whether there is a value in this column within the curves. @param {number} column */
  has(column) {
    return this.points.some((point) => point[column] !== null && this.curves.moment(point[0], 'time') !== null);
  }

  /** @param {Axis} axis @returns {any[][]} [xs, shares] */
  share(axis) {
    return this.over(axis, [SHARE]);
  }

  /** @param {Axis} axis @returns {any[][]} [xs, bytes of all slots, bytes of the largest] */
  memory(axis) {
    return this.over(axis, [ALL, LARGEST]);
  }

  /** Columns over the whole axis of the curves: there is nothing at its ends. @param {Axis} axis @param {number[]} columns */
  over(axis, columns) {
    const times = this.curves.longest()?.times || [];
    if (!times.length) return [[], ...columns.map(() => [])];
    const within = this.points.filter((point) => this.curves.moment(point[0], axis) !== null);
    const shown = [[times[0], null, null, null], ...within, [times[times.length - 1], null, null, null]];
    return [shown.map((point) => this.curves.moment(Number(point[0]), axis)), ...columns.map((column) => shown.map((point) => point[column]))];
  }
}

/** As the server writes it (templatetags/studio.py, size). @param {number} bytes */
function size(bytes) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let step = 0;
  for (; bytes >= 1000 && step < 4; step += 1) bytes /= 1000;
  return `${step && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[step]}`;
}

/** @param {number} share */
const percent = (share) => `${Math.round(100 * share)} %`;

/** The words of a chart: its values under the cursor, else the last ones; '' where there are none. @param {any[][]} data @param {number | null | undefined} index @param {(x: number) => string} at @param {(place: number) => string} say */
function words(data, index, at, say) {
  const place = index ?? data[1].reduce((found, value, each) => (value === null ? found : each), -1);
  return (data[1][place] ?? null) === null ? '' : `${index === null || index === undefined ? '' : `${at(data[0][place])} · `}${say(place)}`;
}

/** @param {any[][]} data @param {number | null | undefined} index @param {(x: number) => string} at */
export const shareWords = (data, index, at) => words(data, index, at, (place) => percent(data[1][place]));

/** @param {any[][]} data @param {number | null | undefined} index @param {(x: number) => string} at */
export const memoryWords = (data, index, at) => words(data, index, at, (place) => `${size(data[1][place])} · largest slot ${size(data[2][place])}`);

/** The chart of the share. @param {any} shared what all charts of the page have @param {HTMLElement} section */
export function shareOptions(shared, section) {
  const ink = colour(section, '--run-color');
  const [x, y] = shared.axes;
  return {
    ...shared,
    scales: { x: plainX, y: { range: () => [0, 1.1] } },
    axes: [x, { ...y, splits: () => [0, 0.5, 1], values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(percent) }],
    series: [{}, { label: 'slots at work', stroke: ink, fill: `color-mix(in srgb, ${ink} 18%, transparent)`, width: 1.5, points: { size: 4 } }],
  };
}

/** The chart of the memory. @param {any} shared @param {HTMLElement} section */
export function memoryOptions(shared, section) {
  const [x, y] = shared.axes;
  return {
    ...shared,
    scales: { x: plainX, y: { range: (/** @type {any} */ _u, /** @type {number} */ _min, /** @type {number} */ max) => [0, (max || 1) * 1.15] } },
    axes: [x, { ...y, space: 24, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(size) }],
    series: [
      {},
      { label: 'all slots', stroke: colour(section, '--run-color'), width: 1.5, points: { size: 4 } },
      { label: 'largest slot', stroke: colour(section, '--text-primary'), width: 1.5, dash: [6, 4], points: { size: 4 } },
    ],
  };
}
