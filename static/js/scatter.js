// @ts-check
/* Any argument against any metric: a point for each run in its colour. Drawn as SVG with attributes only, as the parallel coordinates are;
   the table of differences says the same. */

import { figure } from './chart.js';
import { keep, kept } from './kept.js';

const NS = 'http://www.w3.org/2000/svg';
const HEIGHT = 300;
const [LEFT, RIGHT, TOP, BOTTOM] = [64, 16, 16, 36];
const ROOM = 0.05; // beside the outermost points

/** @typedef {import('./parallel.js').Axis} Axis */
/** @typedef {{at: (value: number | string | null) => number | null, ticks: [number, string][]}} Scale  0 to 1 along the axis */

/** @param {string} name @param {Record<string, string | number>} attributes @param {Element} parent */
function make(name, attributes, parent) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  parent.append(element);
  return element;
}

/** Names stand side by side; numbers that are all positive and lie far apart, by their powers. @param {Axis} axis @returns {Scale} */
export function scale(axis) {
  const there = axis.values.filter((value) => value !== null);
  if (axis.kind === 'text') {
    const names = [...new Set(there)].map(String);
    const at = (/** @type {any} */ value) => (value === null ? null : (names.indexOf(String(value)) + 0.5) / names.length);
    return { at, ticks: names.slice(0, 12).map((name, i) => [(i + 0.5) / names.length, name]) };
  }
  const numbers = /** @type {number[]} */ (there);
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const powers = least > 0 && most / least >= 50;
  const way = (/** @type {number} */ n) => (powers ? Math.log10(n) : n);
  const span = way(most) - way(least) || 1;
  const at = (/** @type {any} */ value) => (value === null ? null : most === least ? 0.5 : ROOM + ((1 - 2 * ROOM) * (way(value) - way(least))) / span);
  const middle = powers ? 10 ** ((way(least) + way(most)) / 2) : (least + most) / 2;
  return { at, ticks: [...new Set([least, middle, most])].map((n) => [/** @type {number} */ (at(n)), figure(n)]) };
}

export class Scatter {
  /** @param {HTMLElement} box @param {HTMLSelectElement} across @param {HTMLSelectElement} up @param {{id: number, name: string}[]} runs */
  constructor(box, across, up, runs) {
    this.box = box;
    this.across = across;
    this.up = up;
    this.runs = runs;
    /** @type {Axis[]} */
    this.axes = [];
    for (const [select, name] of /** @type {[HTMLSelectElement, string][]} */ ([[across, 'across'], [up, 'up']]))
      select.addEventListener('change', () => {
        keep({ [name]: select.value });
        this.draw();
      });
    new ResizeObserver(() => this.draw()).observe(box);
  }

  /** What runs were told comes first among the axes, and what came of it last. @param {Axis[]} axes */
  show(axes) {
    this.axes = axes;
    /** @type {HTMLElement} */ (this.box.closest('section')).hidden = axes.length < 2;
    if (axes.length < 2) return;
    const names = axes.map((axis) => axis.name);
    const came = names.find((name) => name.startsWith('test ')) ?? names[names.length - 1];
    for (const [select, name, usual] of /** @type {[HTMLSelectElement, string, string][]} */ ([[this.across, 'across', names[0]], [this.up, 'up', came]])) {
      const before = select.value || kept(name);
      const chosen = names.includes(before) ? before : usual;
      select.replaceChildren(...names.map((each) => new Option(each, each, false, each === chosen)));
    }
    this.draw();
  }

  draw() {
    const width = this.box.clientWidth;
    const [x, y] = [this.across, this.up].map((select) => this.axes.find((axis) => axis.name === select.value));
    if (!width || !x || !y) return;
    const svg = document.createElementNS(NS, 'svg');
    for (const [key, value] of Object.entries({ width, height: HEIGHT, role: 'img', 'aria-label': `${y.name} by ${x.name}: the table below says the same` })) svg.setAttribute(key, String(value));
    const [across, up] = [scale(x), scale(y)];
    const [wide, high] = [width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM];
    const place = (/** @type {number} */ part) => LEFT + wide * part;
    const level = (/** @type {number} */ part) => TOP + high * (1 - part);
    make('line', { x1: LEFT, x2: LEFT + wide, y1: TOP + high, y2: TOP + high, class: 'parallel-axis' }, svg);
    make('line', { x1: LEFT, x2: LEFT, y1: TOP, y2: TOP + high, class: 'parallel-axis' }, svg);
    for (const [part, words] of across.ticks) make('text', { x: place(part), y: TOP + high + 18, 'text-anchor': 'middle', class: 'parallel-tick' }, svg).textContent = words.slice(0, 14);
    for (const [part, words] of up.ticks) make('text', { x: LEFT - 8, y: level(part) + 4, 'text-anchor': 'end', class: 'parallel-tick' }, svg).textContent = words.slice(0, 9);
    this.runs.forEach((run, i) => {
      const [a, b] = [across.at(x.values[i]), up.at(y.values[i])];
      if (a === null || b === null) return;
      const point = make('circle', { cx: place(a), cy: level(b), r: 5, class: `scatter-point run-${run.id % 14}` }, svg);
      make('title', {}, point).textContent = `${run.name} · ${x.name} ${this.words(x, i)} · ${y.name} ${this.words(y, i)}`;
    });
    this.box.replaceChildren(svg);
  }

  /** @param {Axis} axis @param {number} i */
  words(axis, i) {
    return axis.kind === 'number' ? figure(/** @type {number} */ (axis.values[i])) : String(axis.values[i]);
  }
}
