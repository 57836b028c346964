// @ts-check
/* Runs that were told the same, drawn together: their mean, and a band from the least of them to the greatest. */

import { figure } from './chart.js';
import { keep, kept } from './kept.js';

/** @typedef {import('./parallel.js').Axis} Axis */
/** @typedef {(number | null | undefined)[]} Values */

/** Of values at the same places: least, mean and greatest of those that are there. @param {Values[]} curves @returns {[Values, Values, Values]} */
export function together(curves) {
  /** @type {[Values, Values, Values]} */
  const found = [[], [], []];
  for (let i = 0; i < (curves[0]?.length ?? 0); i += 1) {
    const there = /** @type {number[]} */ (curves.map((values) => values[i]).filter((value) => value !== null && value !== undefined));
    const sum = there.reduce((a, b) => a + b, 0);
    const all = there.length ? [Math.min(...there), sum / there.length, Math.max(...there)] : [undefined, undefined, undefined];
    all.forEach((value, which) => found[which].push(value));
  }
  return found;
}

export class Groups {
  /** @param {HTMLSelectElement} select @param {{groups: (string | null)[] | null}} choice @param {() => void} changed */
  constructor(select, choice, changed) {
    this.select = select;
    this.choice = choice;
    this.changed = changed;
    /** @type {Axis[]} */
    this.axes = [];
    select.addEventListener('change', () => {
      keep({ group: select.value });
      this.choose();
      changed();
    });
  }

  /** Only what at least two runs have alike puts runs together. @param {Axis[]} axes */
  show(axes) {
    this.axes = axes.filter((axis) => new Set(axis.values.filter((value) => value !== null)).size < axis.values.filter((value) => value !== null).length);
    const names = this.axes.map((axis) => axis.name);
    const before = this.select.value || kept('group');
    this.select.replaceChildren(new Option('nothing', ''), ...names.map((name) => new Option(name, name, false, name === before)));
    /** @type {HTMLElement} */ (this.select.closest('label')).hidden = !names.length;
    const was = String(this.choice.groups);
    this.choose();
    if (String(this.choice.groups) !== was) this.changed();
  }

  choose() {
    const axis = this.axes.find((each) => each.name === this.select.value);
    this.choice.groups = axis ? axis.values.map((value) => (value === null ? null : `${axis.name} ${axis.kind === 'number' ? figure(/** @type {number} */ (value)) : value}`)) : null;
  }
}
