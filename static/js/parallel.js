// @ts-check
/* Parallel coordinates: an axis for each argument that differs and for each metric, a line for each run in its colour. Drawn as SVG with
   attributes only (the page's policy allows no inline style). Dragging along an axis keeps the runs of that range. The table says the same. */

import { figure } from './chart.js';

const NS = 'http://www.w3.org/2000/svg';
const HEIGHT = 260;
const TOP = 44;
const BOTTOM = 14;
const SIDE = 60;
const LEAST_GAP = 96;

/** @typedef {{name: string, kind: 'number' | 'text', values: (number | string | null)[]}} Axis */
/** @typedef {{id: number, name: string}} Run */

/** @param {string} name @param {Record<string, string | number>} attributes @param {Element} parent */
function make(name, attributes, parent) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  parent.append(element);
  return element;
}

export class Parallel {
  /** @param {HTMLElement} box @param {HTMLElement} said @param {HTMLElement} all the button that forgets the ranges @param {Run[]} runs */
  constructor(box, said, all, runs) {
    this.box = box;
    this.said = said;
    this.all = all;
    this.runs = runs;
    this.intro = said.textContent || '';
    /** @type {Axis[]} */
    this.axes = [];
    /** @type {Map<string, [number, number]>} ranges by the axis's name, as heights */
    this.kept = new Map();
    all.addEventListener('click', () => (this.kept.clear(), this.draw()));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  /** Through one axis alone no line can be drawn. @param {Axis[]} axes */
  show(axes) {
    this.axes = axes;
    /** @type {HTMLElement} */ (this.box.closest('section')).hidden = axes.length < 2;
    this.draw();
  }

  /** Where a value stands on its axis, in pixels from the top; null for none. @param {Axis} axis @param {number | string | null} value */
  y(axis, value) {
    if (value === null) return null;
    const room = HEIGHT - TOP - BOTTOM;
    if (axis.kind === 'text') {
      const names = [...new Set(axis.values.filter((v) => v !== null))];
      return TOP + (room * (names.indexOf(value) + 0.5)) / names.length;
    }
    const numbers = /** @type {number[]} */ (axis.values.filter((v) => v !== null));
    const least = Math.min(...numbers);
    const most = Math.max(...numbers);
    return most === least ? TOP + room / 2 : TOP + (room * (most - /** @type {number} */ (value))) / (most - least);
  }

  draw() {
    const width = Math.max(this.box.clientWidth, 2 * SIDE + LEAST_GAP * (this.axes.length - 1));
    if (!this.box.clientWidth) return;
    const svg = document.createElementNS(NS, 'svg');
    for (const [key, value] of Object.entries({ width, height: HEIGHT, 'aria-hidden': 'true', focusable: 'false' })) svg.setAttribute(key, String(value));
    const x = (/** @type {number} */ i) => SIDE + (i * (width - 2 * SIDE)) / (this.axes.length - 1);
    const lines = make('g', {}, svg);
    this.runs.forEach((run, place) => this.line(lines, run, place, x));
    this.axes.forEach((axis, i) => this.axis(svg, axis, x(i)));
    this.box.replaceChildren(svg);
    this.all.hidden = !this.kept.size;
    this.say(null);
  }

  /** Whether the run is in every range that was chosen. @param {number} place */
  chosen(place) {
    return this.axes.every((axis) => {
      const range = this.kept.get(axis.name);
      const y = this.y(axis, axis.values[place]);
      return !range || (y !== null && y >= range[0] && y <= range[1]);
    });
  }

  /** @param {Element} group @param {Run} run @param {number} place @param {(i: number) => number} x */
  line(group, run, place, x) {
    let path = '';
    let pen = 'M';
    this.axes.forEach((axis, i) => {
      const y = this.y(axis, axis.values[place]);
      if (y !== null) path += `${pen}${x(i).toFixed(1)} ${y.toFixed(1)}`;
      pen = y === null ? 'M' : 'L'; // a run that has nothing there leaves a gap
    });
    const state = this.chosen(place) ? '' : ' is-out';
    const line = make('path', { d: path || 'M0 0', class: `parallel-line run-${run.id % 14}${state}` }, group);
    make('title', {}, line).textContent = run.name;
    line.addEventListener('pointerenter', () => this.say(place));
    line.addEventListener('pointerleave', () => this.say(null));
  }

  /** @param {Element} svg @param {Axis} axis @param {number} x */
  axis(svg, axis, x) {
    make('line', { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM, class: 'parallel-axis' }, svg);
    const label = make('text', { x, y: 14, 'text-anchor': 'middle', class: 'parallel-name' }, svg);
    label.textContent = axis.name.length > 16 ? `${axis.name.slice(0, 15)}…` : axis.name;
    make('title', {}, label).textContent = axis.name;
    const ticks = new Map(axis.values.filter((v) => v !== null).map((v) => [this.y(axis, v), axis.kind === 'number' ? figure(/** @type {number} */ (v)) : String(v)]));
    const shown = axis.kind === 'number' ? [Math.min(.../** @type {number[]} */ ([...ticks.keys()])), Math.max(.../** @type {number[]} */ ([...ticks.keys()]))] : [...ticks.keys()].slice(0, 8);
    const beside = (/** @type {number} */ y) => (axis.kind === 'text' ? y + 4 : y === shown[0] ? y - 5 : y + 13); // numbers stand above and below the lines
    for (const y of new Set(shown)) make('text', { x: x + 6, y: beside(Number(y)), class: 'parallel-tick' }, svg).textContent = (ticks.get(y) || '').slice(0, 14);
    const range = this.kept.get(axis.name);
    if (range) make('rect', { x: x - 7, y: range[0], width: 14, height: Math.max(2, range[1] - range[0]), class: 'parallel-range' }, svg);
    const grip = make('rect', { x: x - 12, y: TOP, width: 24, height: HEIGHT - TOP - BOTTOM, class: 'parallel-grip' }, svg);
    grip.addEventListener('pointerdown', (event) => this.brush(axis, /** @type {PointerEvent} */ (event)));
  }

  /** @param {Axis} axis @param {PointerEvent} begin */
  brush(axis, begin) {
    begin.preventDefault();
    const top = this.box.getBoundingClientRect().top;
    const from = begin.clientY - top;
    const move = (/** @type {PointerEvent} */ event) => {
      const to = Math.min(HEIGHT, Math.max(0, event.clientY - top));
      if (Math.abs(to - from) < 4) this.kept.delete(axis.name); // a click forgets the range
      else this.kept.set(axis.name, [Math.min(from, to), Math.max(from, to)]);
      this.draw();
    };
    const end = (/** @type {PointerEvent} */ event) => {
      move(event);
      window.removeEventListener('pointermove', move);
    };
    window.addEventListener('pointermove', move);
    window.addEventListener('pointerup', end, { once: true });
  }

  /** The run's values in words; how many are left where none is pointed at. @param {number | null} place */
  say(place) {
    for (const [i, line] of [...this.box.querySelectorAll('.parallel-line')].entries()) line.classList.toggle('is-focus', i === place);
    if (place !== null) {
      const told = this.axes.filter((axis) => axis.values[place] !== null).map((axis) => `${axis.name} ${axis.kind === 'number' ? figure(/** @type {number} */ (axis.values[place])) : axis.values[place]}`);
      this.said.textContent = [this.runs[place].name, ...told].join(' · ');
    } else if (this.kept.size) {
      const left = this.runs.filter((_, i) => this.chosen(i));
      this.said.textContent = `${left.length} of ${this.runs.length} runs are in range${left.length ? `: ${left.map((run) => run.name).join(', ')}` : ''}`;
    } else this.said.textContent = this.intro;
  }
}
