// @ts-check
/* What a run's slots did over time, as its machine says: the share of the time in which they were at work, and their memory. Fetched beside the
   curves, a few points more each time; where nothing is known there is nothing to draw.

   However many slots there are, a chart has the line of all of them and a band from the least of them to the most; single ones are lines on top, a
   few at a time (slotchoice.js). */

import { colour, plainX } from './chart.js';

/** @typedef {[number, number | null, number | null, number | null, number | null, number | null, number | null]} Point  Unix seconds, share, bytes of all slots, of the largest, least share, greatest, bytes of the smallest */
/** @typedef {import('./curves.js').Axis} Axis */
/** @typedef {import('./curves.js').Curves} Curves */

const EVERY_S = 5; // UtilizationSample.EVERY_S
const SHARE = 1; // columns of a point
const ALL = 2;
const LARGEST = 3;
const LEAST_SHARE = 4;
const GREATEST_SHARE = 5;
const SMALLEST = 6;
const COLUMNS = 7; // after them: share and bytes of each single slot
const FEW = 4; // FEW_SLOTS of views/curves.py
export const DASHES = [[], [8, 4], [3, 3], [10, 3, 3, 3], [14, 5], [5, 7]];

export class Use {
  /** @param {string} address @param {Curves} curves whose axis it is drawn on */
  constructor(address, curves) {
    this.address = address;
    this.curves = curves;
    /** The points, each with what the chosen slots have. @type {any[][]} */
    this.points = [];
    /** Every slot that the run has held: [number, label]. @type {[number, string][]} */
    this.slots = [];
    /** The single slots that the points have. @type {number[]} */
    this.chosen = [];
    /** Those that the reader wants; null: the server says. @type {number[] | null} */
    this.wanted = null;
    this.asking = false;
    this.again = false; // somebody asked meanwhile
    this.anew = false; // all of it is wanted, not only what is new
  }

  /** What is new since the last point, or all of it where other slots are wanted; whether anything is. Who asks meanwhile is answered by it. */
  async fetch() {
    this.again = true;
    if (this.asking) return false;
    this.asking = true;
    let fresh = false;
    try {
      while (this.again) {
        this.again = false;
        fresh = (await this.ask()) || fresh;
      }
    } catch {
      // the next word of the server asks again
    } finally {
      this.asking = false;
    }
    return fresh;
  }

  async ask() {
    const wanted = this.wanted;
    const more = !this.anew && (wanted === null || String(wanted) === String(this.chosen));
    const last = more ? this.points[this.points.length - 1] : undefined;
    const query = new URLSearchParams({ after: String(last ? Math.floor(last[0] / EVERY_S) : 0) });
    if (wanted || last) query.set('slots', (wanted || this.chosen).join(','));
    const response = await fetch(`${this.address}?${query}`, { headers: { Accept: 'application/json' } });
    if (!response.ok) return false;
    const answer = await response.json();
    this.slots = answer.slots;
    this.chosen = this.slots.map(([slot]) => slot).filter((slot) => slot in answer.lines);
    this.anew = last !== undefined && wanted === null && this.slots.length <= FEW && this.chosen.length < this.slots.length; // it has got a slot
    this.again ||= this.anew;
    if (this.wanted === wanted) this.wanted = wanted && this.chosen; // no more than the server gives
    const fresh = answer.points.map((/** @type {Point} */ point, /** @type {number} */ place) => [...point, ...this.chosen.flatMap((slot) => answer.lines[slot][place])]);
    this.points = last ? [...this.points, ...fresh] : fresh;
    return fresh.length > 0;
  }

  hasShare() {
    return this.has(SHARE);
  }

  hasMemory() {
    return this.has(ALL);
  }

  /** Whether there is a value in this column that the curves have a place for. @param {number} column */
  has(column) {
    return this.curves.longest() !== null && this.within().some((point) => point[column] !== null);
  }

  /** The points within the curves; where there is none, because the run was short, all of them, at the end that is nearer. */
  within() {
    const inside = this.points.filter((point) => this.curves.moment(point[0], 'time') !== null);
    const times = this.curves.longest()?.times || [];
    if (inside.length || !times.length) return inside;
    return this.points.map((point) => [Math.min(times[times.length - 1], Math.max(times[0], point[0])), ...point.slice(1)]);
  }

  /** Whether the memory of all slots is drawn: beside it, one of many would be a line at the bottom. */
  showsAll() {
    return this.slots.length <= FEW || !this.chosen.length;
  }

  /** @param {Axis} axis @returns {any[][]} [xs, greatest share, least, share of all, the chosen slots'] */
  share(axis) {
    return this.over(axis, [GREATEST_SHARE, LEAST_SHARE, SHARE, ...this.chosen.map((_, place) => COLUMNS + 2 * place)]);
  }

  /** @param {Axis} axis @returns {any[][]} [xs, bytes of the largest slot, of the smallest, of all, of the chosen ones] */
  memory(axis) {
    return this.over(axis, [LARGEST, SMALLEST, ALL, ...this.chosen.map((_, place) => COLUMNS + 2 * place + 1)]);
  }

  /** Columns over the whole axis of the curves: there is nothing at its ends. @param {Axis} axis @param {number[]} columns */
  over(axis, columns) {
    const times = this.curves.longest()?.times || [];
    if (!times.length) return [[], ...columns.map(() => [])];
    const shown = [[times[0]], ...this.within(), [times[times.length - 1]]];
    return [shown.map((point) => this.curves.moment(Number(point[0]), axis)), ...columns.map((column) => shown.map((point) => point[column] ?? null))];
  }
}

const GREATEST = 1; // columns of `share` and `memory`
const LEAST = 2;
const WHOLE = 3;
const LINES = 4;

/** As the server writes it (templatetags/studio.py, size). @param {number} bytes */
function size(bytes) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let step = 0;
  for (; bytes >= 1000 && step < 4; step += 1) bytes /= 1000;
  return `${step && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[step]}`;
}

/** @param {number} share */
const percent = (share) => `${Math.round(100 * share)} %`;

/** The place that a chart speaks of: under the cursor, else the last one with a value; null where there is none. @param {any[][]} data @param {number | null | undefined} index */
function placeOf(data, index) {
  const place = index ?? data[WHOLE].reduce((found, value, each) => (value === null ? found : each), -1);
  return (data[WHOLE][place] ?? null) === null ? null : place;
}

/** @param {any[][]} data @param {number | null | undefined} index @param {(x: number) => string} at @param {(place: number) => string} say */
function words(data, index, at, say) {
  const place = placeOf(data, index);
  return place === null ? '' : `${index === null || index === undefined ? '' : `${at(data[0][place])} · `}${say(place)}`;
}

/** @param {any[][]} data @param {number | null | undefined} index @param {(x: number) => string} at */
export const shareWords = (data, index, at) =>
  words(data, index, at, (place) => {
    const [greatest, least] = [data[GREATEST][place], data[LEAST][place]];
    const range = greatest === null || percent(greatest) === percent(least) ? '' : ` · slots ${percent(least).replace(' %', '')} to ${percent(greatest)}`;
    return percent(data[WHOLE][place]) + range;
  });

/** @param {any[][]} data @param {number | null | undefined} index @param {(x: number) => string} at */
export const memoryWords = (data, index, at) => words(data, index, at, (place) => `${size(data[WHOLE][place])} · largest slot ${size(data[GREATEST][place])}`);

/** What each chosen slot has there: "85 %, 1.2 GB". @param {any[][]} shares @param {any[][]} sizes @param {number | null | undefined} index @returns {string[]} */
export function readings(shares, sizes, index) {
  const place = placeOf(shares, index) ?? placeOf(sizes, index);
  return shares.slice(LINES).map((column, line) => {
    const [share, bytes] = place === null ? [null, null] : [column[place], sizes[LINES + line][place]];
    return [share === null ? '' : percent(share), bytes === null ? '' : size(bytes)].filter(Boolean).join(', ') || '–';
  });
}

/** The series of a chart: band, all, single ones. @param {HTMLElement} section @param {string} what @param {Use} use @param {boolean} whole whether all of them together are a line */
function series(section, what, use, whole) {
  const ink = colour(section, '--run-color');
  const edge = { width: 0, points: { show: false } };
  return {
    bands: [{ series: [GREATEST, LEAST], fill: `color-mix(in srgb, ${ink} 22%, transparent)` }],
    series: [
      {},
      { label: `most of a slot`, ...edge },
      { label: `least of a slot`, ...edge },
      { label: what, stroke: ink, width: 2, show: whole, points: { size: 4 } },
      ...use.chosen.map((slot, place) => ({
        label: String(slot),
        stroke: colour(section, `--slot-${place + 1}`),
        width: 1.5,
        dash: DASHES[place],
        points: { show: false },
      })),
    ],
  };
}

/** The chart of the share. @param {any} shared what all charts of the page have @param {HTMLElement} section @param {Use} use */
export function shareOptions(shared, section, use) {
  const [x, y] = shared.axes;
  return {
    ...shared,
    scales: { x: plainX, y: { range: () => [0, 1.1] } },
    axes: [x, { ...y, splits: () => [0, 0.5, 1], values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(percent) }],
    ...series(section, 'slots at work', use, true),
  };
}

/** The chart of the memory. @param {any} shared @param {HTMLElement} section @param {Use} use */
export function memoryOptions(shared, section, use) {
  const [x, y] = shared.axes;
  return {
    ...shared,
    scales: { x: plainX, y: { range: (/** @type {any} */ _u, /** @type {number} */ _min, /** @type {number} */ max) => [0, (max || 1) * 1.15] } },
    axes: [x, { ...y, space: 24, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(size) }],
    ...series(section, 'all slots', use, use.showsAll()),
  };
}
