// @ts-check
/* Parallel coordinates: an axis for each argument that differs and for each metric, a line for each run in its colour. Drawn as SVG with
   attributes only (the page's policy allows no inline style). Dragging along an axis keeps the runs of that range; so do its two ends, which are
   sliders. An axis of positive numbers has a button for a logarithmic scale. The table says the same. */

import { figure } from './chart.js';
import { keepAll, keptAll } from './kept.js';
import { Scale } from './scale.js';

const NS = 'http://www.w3.org/2000/svg';
const HEIGHT = 300;
const TOP = 68;
const BOTTOM = 22;
const ROOM = HEIGHT - TOP - BOTTOM;
const SIDE = 60;
const LEAST_GAP = 96;
const MOST_NAMED = 20; // runs in a sentence
const MOVES = /** @type {Record<string, number>} */ ({ ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 });

/** @typedef {import('./scale.js').Axis} Axis */
/** @typedef {{id: number, name: string}} Run */
/** @typedef {'least' | 'most'} End */

/** @param {string} name @param {Record<string, string | number>} attributes @param {Element} parent */
function make(name, attributes, parent) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  parent.append(element);
  return element;
}

/** @param {Scale} scale @param {number} at */
const height = (scale, at) => TOP + ROOM * (1 - scale.fraction(at));

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
    /** @type {Scale[]} */
    this.scales = [];
    /** @type {Map<string, Record<End, number>>} ranges by the axis's name, in values */
    this.kept = new Map();
    all.addEventListener('click', () => (this.kept.clear(), this.draw(), this.box.focus()));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  /** Through one axis alone no line can be drawn. @param {Axis[]} axes */
  show(axes) {
    this.axes = axes;
    /** @type {HTMLElement} */ (this.box.closest('section')).hidden = axes.length < 2;
    this.rescale();
  }

  rescale() {
    const [logarithmic, linear] = [keptAll('log-axis'), keptAll('linear-axis')];
    this.scales = this.axes.map((axis) => new Scale(axis, logarithmic.includes(axis.name) ? true : linear.includes(axis.name) ? false : null));
    this.draw();
  }

  /** Where a run's value stands on an axis, in pixels from the top; null for none. @param {number} i @param {number} place */
  y(i, place) {
    const at = this.scales[i].place(this.axes[i].values[place]);
    return at === null ? null : height(this.scales[i], at);
  }

  /** Anew; what has the keyboard has it afterwards too. */
  draw() {
    const width = Math.max(this.box.clientWidth, 2 * SIDE + LEAST_GAP * (this.axes.length - 1));
    if (!this.box.clientWidth) return;
    const focused = this.box.contains(document.activeElement) ? document.activeElement?.getAttribute('data-key') : null;
    const svg = document.createElementNS(NS, 'svg');
    for (const [key, value] of Object.entries({ width, height: HEIGHT, focusable: 'false' })) svg.setAttribute(key, String(value));
    const x = (/** @type {number} */ i) => SIDE + (i * (width - 2 * SIDE)) / (this.axes.length - 1);
    const lines = make('g', { 'aria-hidden': 'true' }, svg);
    this.runs.forEach((run, place) => this.line(lines, run, place, x));
    this.scales.forEach((scale, i) => this.axis(svg, scale, x(i)));
    this.box.replaceChildren(svg);
    if (focused) /** @type {SVGElement | null} */ (this.box.querySelector(`[data-key="${CSS.escape(focused)}"]`))?.focus({ preventScroll: true });
    this.all.hidden = !this.kept.size;
    this.say(null);
  }

  /** Whether the run is in every range that was chosen. @param {number} place */
  chosen(place) {
    return this.scales.every((scale) => {
      const range = this.kept.get(scale.axis.name);
      const at = scale.place(scale.axis.values[place]);
      return !range || (at !== null && at >= range.least && at <= range.most);
    });
  }

  /** @param {Element} group @param {Run} run @param {number} place @param {(i: number) => number} x */
  line(group, run, place, x) {
    let path = '';
    let pen = 'M';
    this.axes.forEach((_, i) => {
      const y = this.y(i, place);
      if (y !== null) path += `${pen}${x(i).toFixed(1)} ${y.toFixed(1)}`;
      pen = y === null ? 'M' : 'L'; // a run that has nothing there leaves a gap
    });
    const state = this.chosen(place) ? '' : ' is-out';
    const line = make('path', { d: path || 'M0 0', class: `parallel-line run-${run.id % 14}${state}` }, group);
    make('title', {}, line).textContent = run.name;
    line.addEventListener('pointerenter', () => this.say(place));
    line.addEventListener('pointerleave', () => this.say(null));
  }

  /** @param {Element} svg @param {Scale} scale @param {number} x */
  axis(svg, scale, x) {
    const { name } = scale.axis;
    const seen = make('g', { 'aria-hidden': 'true' }, svg);
    make('line', { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM, class: 'parallel-axis' }, seen);
    const label = make('text', { x, y: 14, 'text-anchor': 'middle', class: 'parallel-name' }, seen);
    label.textContent = name.length > 16 ? `${name.slice(0, 15)}…` : name;
    make('title', {}, label).textContent = name;
    for (const at of scale.ticks()) {
      const y = height(scale, at);
      const beside = scale.axis.kind === 'text' || (at !== scale.most && at !== scale.least) ? y + 4 : at === scale.most ? y - 6 : y + 15; // ends stand clear of the lines
      make('text', { x: x + 12, y: beside, class: 'parallel-tick' }, seen).textContent = scale.say(at).slice(0, 14);
    }
    const range = this.kept.get(name);
    const [top, bottom] = range ? [range.most, range.least].map((at) => Math.min(HEIGHT - BOTTOM, Math.max(TOP, height(scale, at)))) : [0, 0];
    if (range) make('rect', { x: x - 7, y: top, width: 14, height: Math.max(2, bottom - top), class: 'parallel-range' }, seen);
    if (scale.mayBeLogarithmic) this.toggle(svg, scale, x);
    if (!scale.varies) return;
    const grip = make('rect', { x: x - 12, y: TOP, width: 24, height: ROOM, class: 'parallel-grip' }, seen);
    grip.addEventListener('pointerdown', (event) => this.brush(scale, /** @type {PointerEvent} */ (event)));
    this.end(svg, scale, x, 'most');
    this.end(svg, scale, x, 'least');
  }

  /** The button for a logarithmic scale. @param {Element} svg @param {Scale} scale @param {number} x */
  toggle(svg, scale, x) {
    const { name } = scale.axis;
    const button = Object.assign(document.createElement('button'), { type: 'button', className: 'parallel-scale', textContent: 'Log' });
    for (const [key, value] of [['aria-pressed', String(scale.logarithmic)], ['aria-label', `Log scale of ${name}`], ['data-key', `scale ${name}`]]) button.setAttribute(key, value);
    button.addEventListener('click', () => {
      const wanted = !scale.logarithmic;
      for (const [list, put] of /** @type {[string, boolean][]} */ ([['log-axis', wanted], ['linear-axis', !wanted]]))
        keepAll(list, [...keptAll(list).filter((each) => each !== name), ...(put && wanted !== scale.usual ? [name] : [])]);
      this.rescale();
    });
    make('foreignObject', { x: x - 24, y: 22, width: 48, height: 26 }, svg).append(button);
  }

  /** An end of the range that an axis keeps: the axis's own where nothing was chosen. @param {Scale} scale @param {End} which */
  at(scale, which) {
    return this.kept.get(scale.axis.name)?.[which] ?? scale[which];
  }

  /** A slider by the pattern of ARIA. @param {Element} svg @param {Scale} scale @param {number} x @param {End} which */
  end(svg, scale, x, which) {
    const { name } = scale.axis;
    const at = this.at(scale, which);
    const y = Math.min(HEIGHT - BOTTOM, Math.max(TOP, height(scale, at)));
    const now = Math.min(scale.most, Math.max(scale.least, at)); // one that was dragged between names may be past the last
    const facts = { role: 'slider', tabindex: 0, 'aria-orientation': 'vertical', 'aria-label': `${name}, ${which === 'least' ? 'from' : 'to'}`, 'data-key': `${which} ${name}` };
    const said = { 'aria-valuemin': scale.least, 'aria-valuemax': scale.most, 'aria-valuenow': now, 'aria-valuetext': scale.say(at) };
    const slider = make('g', { ...facts, ...said, class: `parallel-end${this.kept.has(name) ? ' is-kept' : ''}` }, svg);
    make('rect', { x: x - 12, y: y - 12, width: 24, height: 24, class: 'parallel-reach' }, slider);
    make('rect', { x: x - 9, y: y - 3, width: 18, height: 6, class: 'parallel-handle' }, slider);
    slider.addEventListener('keydown', (event) => this.press(scale, which, /** @type {KeyboardEvent} */ (event)));
    slider.addEventListener('pointerdown', (event) => this.pull(scale, which, /** @type {PointerEvent} */ (event)));
  }

  /** @param {Scale} scale @param {End} which @param {KeyboardEvent} event */
  press(scale, which, event) {
    const now = this.at(scale, which);
    const page = Math.max(1, Math.round(scale.stops.length / 10));
    const by = MOVES[event.key] ?? { PageUp: page, PageDown: -page }[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === 'Escape' && this.kept.has(scale.axis.name)) this.kept.delete(scale.axis.name);
    else if (event.key === 'Home') this.keep(scale, which, scale.least);
    else if (event.key === 'End') this.keep(scale, which, scale.most);
    else if (by) this.keep(scale, which, scale.step(now, by));
    else return;
    event.preventDefault();
    event.stopPropagation();
    this.draw();
  }

  /** An end of a range, no further than the other one. All that there is is no range. @param {Scale} scale @param {End} which @param {number} at */
  keep(scale, which, at) {
    const range = { least: this.at(scale, 'least'), most: this.at(scale, 'most') };
    range[which] = which === 'least' ? Math.min(at, range.most) : Math.max(at, range.least);
    if (range.least <= scale.least && range.most >= scale.most) this.kept.delete(scale.axis.name);
    else this.kept.set(scale.axis.name, range);
  }

  /** A new range. @param {Scale} scale @param {PointerEvent} begin */
  brush(scale, begin) {
    const from = begin.clientY;
    this.follow(scale, begin, (at, y) => {
      const first = this.under(scale, from);
      if (Math.abs(y - from) < 4) this.kept.delete(scale.axis.name); // a click forgets the range
      else this.kept.set(scale.axis.name, { least: Math.min(first, at), most: Math.max(first, at) });
    });
  }

  /** An end of a range that there is. @param {Scale} scale @param {End} which @param {PointerEvent} begin */
  pull(scale, which, begin) {
    this.follow(scale, begin, (at) => this.keep(scale, which, at));
    /** @type {SVGElement | null} */ (this.box.querySelector(`[data-key="${CSS.escape(`${which} ${scale.axis.name}`)}"]`))?.focus({ preventScroll: true });
  }

  /** What stands at a height of the window. @param {Scale} scale @param {number} y */
  under(scale, y) {
    return scale.at(Math.min(1, Math.max(0, 1 - (y - this.box.getBoundingClientRect().top - TOP) / ROOM)));
  }

  /** @param {Scale} scale @param {PointerEvent} begin @param {(at: number, y: number) => void} change */
  follow(scale, begin, change) {
    begin.preventDefault();
    const move = (/** @type {PointerEvent} */ event) => {
      change(this.under(scale, event.clientY), event.clientY);
      this.draw();
    };
    const end = (/** @type {PointerEvent} */ event) => {
      if (event.type === 'pointerup') move(event);
      for (const [name, act] of /** @type {[string, EventListener][]} */ (Object.entries({ pointermove: move, pointerup: end, pointercancel: end }))) window.removeEventListener(name, act);
    };
    for (const [name, act] of /** @type {[string, EventListener][]} */ (Object.entries({ pointermove: move, pointerup: end, pointercancel: end }))) window.addEventListener(name, act);
  }

  /** The run's values in words; how many are left where none is pointed at. @param {number | null} place */
  say(place) {
    for (const [i, line] of [...this.box.querySelectorAll('.parallel-line')].entries()) line.classList.toggle('is-focus', i === place);
    if (place !== null) {
      const told = this.axes.filter((axis) => axis.values[place] !== null).map((axis) => `${axis.name} ${axis.kind === 'number' ? figure(/** @type {number} */ (axis.values[place])) : axis.values[place]}`);
      this.said.textContent = [this.runs[place].name, ...told].join(' · ');
    } else if (this.kept.size) {
      const left = this.runs.filter((_, i) => this.chosen(i));
      const names = left.slice(0, MOST_NAMED).map((run) => run.name);
      const more = left.length > MOST_NAMED ? `, and ${left.length - MOST_NAMED} more` : '';
      this.said.textContent = `${left.length} of ${this.runs.length} runs are in range${left.length ? `: ${names.join(', ')}${more}` : ''}`;
    } else this.said.textContent = this.intro;
  }
}
