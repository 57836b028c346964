// @ts-check
/* Where a value stands on an axis of the parallel coordinates, and what stands at a place. Numbers are themselves, on a linear or a logarithmic
   scale; names have places by their order, the first above. A range is kept in these values: it stays the same when the scale or the size does not. */

import { figure } from './chart.js';

const DECADES = 100; // most to least, from which on a logarithmic scale says more

/** @typedef {{name: string, kind: 'number' | 'text', values: (number | string | null)[]}} Axis */

export class Scale {
  /** @param {Axis} axis @param {boolean | null} logarithmic null: where its values ask for it */
  constructor(axis, logarithmic) {
    this.axis = axis;
    const there = axis.values.filter((value) => value !== null);
    /** @type {(number | string)[]} */
    this.names = axis.kind === 'text' ? [...new Set(there)] : [];
    /** Values that runs have, the least first. */
    this.stops = [...new Set(there.map((value) => /** @type {number} */ (this.place(value))))].sort((a, b) => a - b);
    this.least = this.stops[0];
    this.most = this.stops[this.stops.length - 1];
    /** Whether there is anything to choose a range of. */
    this.varies = this.stops.length > 1;
    this.mayBeLogarithmic = axis.kind === 'number' && this.varies && this.least > 0;
    this.usual = this.mayBeLogarithmic && this.most / this.least >= DECADES;
    this.logarithmic = this.mayBeLogarithmic && (logarithmic ?? this.usual);
  }

  /** A value as a number; null for none. @param {number | string | null} value */
  place(value) {
    if (value === null) return null;
    return this.axis.kind === 'text' ? -this.names.indexOf(value) : /** @type {number} */ (value);
  }

  /** From 0 at the bottom to 1 at the top. @param {number} at */
  fraction(at) {
    if (this.axis.kind === 'text') return (this.names.length - 0.5 + at) / this.names.length;
    if (!this.varies) return 0.5;
    if (this.logarithmic) return Math.log(at / this.least) / Math.log(this.most / this.least);
    return (at - this.least) / (this.most - this.least);
  }

  /** The other way round. @param {number} fraction */
  at(fraction) {
    if (this.axis.kind === 'text') return fraction * this.names.length - this.names.length + 0.5;
    if (fraction <= 0) return this.least;
    if (fraction >= 1) return this.most;
    return this.logarithmic ? this.least * (this.most / this.least) ** fraction : this.least + fraction * (this.most - this.least);
  }

  /** So many values further; no further than the last. @param {number} from @param {number} by */
  step(from, by) {
    const next = by > 0 ? this.stops.findIndex((stop) => stop > from) : this.stops.findLastIndex((stop) => stop < from);
    const place = next < 0 ? (by > 0 ? this.stops.length - 1 : 0) : next + by - Math.sign(by);
    return this.stops[Math.min(this.stops.length - 1, Math.max(0, place))];
  }

  /** In words. @param {number} at */
  say(at) {
    if (this.axis.kind === 'number') return figure(at);
    return String(this.names[Math.min(this.names.length - 1, Math.max(0, Math.round(-at)))]);
  }

  /** What is written beside it: its ends, and powers of ten between them, or its first names. */
  ticks() {
    if (this.axis.kind === 'text') return this.stops.slice(-8);
    const decades = [];
    if (this.logarithmic)
      for (let power = Math.ceil(Math.log10(this.least)); power <= Math.log10(this.most); power++) {
        const apart = Math.abs(this.fraction(10 ** power) - 0.5);
        if (apart < 0.4) decades.push(10 ** power); // nearer to an end it would stand on it
      }
    return [...new Set([this.least, ...(decades.length > 6 ? [] : decades), this.most])];
  }
}
