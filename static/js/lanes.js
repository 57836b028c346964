// @ts-check
/* Slot lanes over time: one lane per slot, bars in the colour of the run that held it, the right edge is now. Drawn as SVG with attributes
   only (the page's policy allows no inline style). The table on the same page says the same in words. */

import { isolated } from './chart.js';
import { clock } from './times.js';

const NS = 'http://www.w3.org/2000/svg';
const AXIS = 24;
const HEADING = 22;
const MOST_NAME = 8; // letters of a person's name beside a slot's
const PAD = 8; // pixels before a bar's words
const LABEL = 14; // pixels that a lane's name needs
export const LEFT = 104;
export const RIGHT = 12;
const COLOURS = 14;

/** @param {string} name @param {Record<string, string | number>} attributes @param {Element} [parent] */
function make(name, attributes, parent) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  parent?.append(element);
  return element;
}

/** @typedef {{text: Element, name: string, person: string, room: number}} Word */

const ink = document.createElement('canvas').getContext('2d');

/** How wide it is in the font of the bars' words. @param {string} text */
function measured(text) {
  if (!ink) return 0;
  ink.font = "12px 'IBM Plex Sans', sans-serif";
  return ink.measureText(text).width;
}

/** The run's name and its person as far as there is room for them; what is cut off says so. @param {string} name @param {string} person
 * @param {number} room pixels */
export function fitted(name, person, room) {
  const whole = person ? `${isolated(name)} · ${person}` : isolated(name);
  if (measured(whole) <= room) return whole;
  if (measured(name) <= room) return isolated(name);
  const letters = [...name];
  let count = Math.min(letters.length, Math.floor((letters.length * room) / Math.max(1, measured(name))));
  while (count > 1 && measured(`${letters.slice(0, count).join('')}…`) > room) count -= 1;
  return count > 1 ? `${isolated(letters.slice(0, count).join('').trimEnd())}…` : '';
}

/** @param {Word} word @param {number} room */
function fitWord(word, room) {
  if (word.room === room) return; // it is asked for four times a second
  word.room = room;
  word.text.textContent = room > 0 ? fitted(word.name, word.person, room) : '';
}

/** Round moments of the reader's clock for an axis of `width` pixels. @param {number} begin @param {number} end @param {number} width */
export function moments(begin, end, width) {
  const wanted = Math.max(2, Math.floor(width / 90));
  const step = STEPS.find((s) => (end - begin) / s <= wanted) || STEPS[STEPS.length - 1];
  const offset = new Date(end * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let t = Math.ceil((begin - offset) / step) * step + offset; t <= end; t += step) found.push(t);
  return found;
}

/** What stands at such a moment: seconds where they matter. @param {number[]} found */
export function labels(found) {
  const step = found.length > 1 ? found[1] - found[0] : 60;
  return found.map((t) => {
    const date = new Date(t * 1000);
    if (step >= 43200) return date.toLocaleDateString(undefined, { day: 'numeric', month: 'short' });
    return step >= 60 ? clock(date).slice(0, 5) : clock(date);
  });
}

/** Whether the word at `px` of `width` has room: at the edges half of it would be cut off. @param {number} px @param {number} width */
export function hasRoom(px, width) {
  return px >= 20 && px <= width - 16;
}

/** What stands beside a slot's name when it is not simply free or held. */
const STATES = /** @type {Record<string, string>} */ ({ draining: 'draining', out: 'out of service', silent: 'lost', stuck: 'stuck', leaving: 'leaving' });

/** Round steps for a time axis, in seconds. */
const STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];

export class Lanes {
  /** @param {HTMLElement} box @param {(run: number) => void} open */
  constructor(box, open) {
    this.box = box;
    this.open = open;
    this.onFocus = /** @type {((run: number | null) => void) | null} */ (null);
    this.answer = /** @type {any} */ (null);
    this.openEnd = 'now'; // what is said of a bar without an end
    this.marks = /** @type {{run: number, t: number, title: string}[]} */ ([]);
    this.bars = /** @type {{element: Element, begin: number, end: number | null, word?: Word}[]} */ ([]);
    this.svg = make('svg', { class: 'lanes', 'aria-hidden': 'true', focusable: 'false' });
    box.replaceChildren(this.svg);
    this.hatch();
    this.body = make('g', {}, this.svg);
    this.over = make('g', {}, this.svg);
    this.words = make('g', {}, this.svg); // above the lines, which would cross them
    this.hand = make('line', { class: 'cursor', y1: 0, visibility: 'hidden' }, this.svg);
    this.event = make('line', { class: 'event', y1: 0, visibility: 'hidden' }, this.svg);
    this.begin = this.end = this.eventAt = 0;
    this.axis = make('g', { class: 'lanes-axis' }, this.svg);
  }

  hatch() {
    const defs = make('defs', {}, this.svg);
    const pattern = make('pattern', { id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' }, defs);
    make('rect', { width: 3, height: 6, class: 'hatch-line' }, pattern);
  }

  get gap() {
    const count = this.answer?.lanes.length || 1;
    return count <= 24 ? 5 : count <= 48 ? 2 : 1;
  }

  get laneHeight() {
    const count = this.answer?.lanes.length || 1;
    return count <= 8 ? 30 : count <= 24 ? 20 : count <= 48 ? 12 : 6;
  }

  /** @param {any} answer of /cluster/lanes */
  show(answer) {
    this.answer = answer;
    this.readable = new Set(answer.readable);
    this.body.replaceChildren();
    this.words.replaceChildren();
    this.bars = [];
    const height = this.laneHeight;
    const named = Math.ceil(LABEL / (height + this.gap)); // labels of very many lanes would lie over each other
    const says = (/** @type {any} */ lane) => lane.state in STATES || lane.reserved; // and those of lanes that are not as they should be come first
    let free = 0;
    const several = new Set(answer.lanes.map((/** @type {any} */ lane) => lane.node)).size > 1;
    let y = 0;
    answer.lanes.forEach((/** @type {any} */ lane, /** @type {number} */ row) => {
      if (several && lane.node !== answer.lanes[row - 1]?.node) y = this.heading(lane.node, y);
      const wanted = says(lane) || (row % named === 0 && !answer.lanes.slice(row + 1, row + named).some(says));
      const label = wanted && y >= free;
      if (label) free = y + LABEL;
      this.lane(lane, y, height, label);
      y += height + this.gap;
    });
    const total = y + AXIS;
    this.svg.setAttribute('height', String(total));
    this.height = total;
    for (const line of [this.hand, this.event]) line.setAttribute('y2', String(total - AXIS));
  }

  /** Where there are several machines each has its name above its lanes; where these begin. @param {string} node @param {number} y */
  heading(node, y) {
    make('text', { class: 'lane-node', x: LEFT, y: y + HEADING - 6 }, this.body).textContent = node;
    return y + HEADING;
  }

  /** @param {any} lane @param {number} y @param {number} height @param {boolean} named */
  lane(lane, y, height, named) {
    const away = lane.state === 'draining' || lane.state === 'out';
    make('rect', { class: 'lane', x: LEFT, y, height, width: '100%' }, this.body);
    if (away) make('rect', { class: 'lane-away', x: LEFT, y, height, width: '100%', fill: 'url(#hatch)' }, this.body);
    const big = height >= 20;
    const kept = lane.reserved;
    // Beside the slot's name too: a slot that became free a moment ago has no room for words yet.
    const said = STATES[lane.state] || (kept ? `for ${kept.person.length > MOST_NAME ? `${kept.person.slice(0, MOST_NAME - 1)}…` : kept.person}` : '');
    if (named) {
      const label = make('text', { class: 'lane-label', x: LEFT - 8, y: y + height / 2 + (big ? 4 : 3), 'text-anchor': 'end' }, this.body);
      label.textContent = said ? `${lane.label} · ${said}` : lane.label;
      make('title', {}, label).textContent = `${lane.label} on ${lane.node}: ${kept?.words || lane.state}`;
    }
    for (const bar of lane.bars) this.bar(bar, y, height, kept && bar.end === null ? kept.words : '');
    if (kept && lane.state === 'free') this.reserved(lane, y, height);
    if (lane.silent_since !== null && lane.state === 'silent') this.lost(lane, y, height);
    if (big) for (const bar of lane.bars) this.word(bar, y, height, kept && bar.end === null ? `, then ${kept.person}` : '');
  }

  /** @param {any} lane @param {number} y @param {number} height */
  lost(lane, y, height) {
    // Nobody knows what has been since its node was last heard of: what was granted stays, under a hatch.
    const lost = make('svg', { y, height, class: 'bar-away' }, this.body);
    make('rect', { width: '100%', height: '100%', class: 'bar-lost' }, lost);
    make('title', {}, lost).textContent = `${lane.node} has not been heard of since ${clock(new Date(lane.silent_since * 1000))}. Its runs may go on.`;
    this.bars.push({ element: lost, begin: lane.silent_since, end: null });
  }

  /** A slot that nobody holds any more may be somebody's already. @param {any} lane @param {number} y @param {number} height */
  reserved(lane, y, height) {
    const { run, words } = lane.reserved;
    const begin = lane.bars[lane.bars.length - 1]?.end ?? 0;
    const holder = make('svg', { y, height, class: `bar-reserved run-${run % COLOURS}`, 'data-bar': run }, this.body);
    make('rect', { width: '100%', height: '100%', class: 'bar-edge' }, holder);
    make('title', {}, holder).textContent = words;
    this.bars.push({ element: holder, begin, end: null });
    if (height < 20) return;
    const word = make('svg', { y, height, class: 'bar-word', 'data-bar': run }, this.words);
    const text = make('text', { x: PAD, y: height / 2 + 4, class: 'bar-promise' }, word);
    this.bars.push({ element: word, begin, end: null, word: { text, name: words, person: '', room: -1 } });
  }

  /** @param {any} bar @param {number} y @param {number} height @param {string} more said of it */
  bar(bar, y, height, more) {
    const mine = this.readable.has(bar.run);
    const holder = make('svg', { y, height, class: `bar-run run-${bar.run % COLOURS}${mine ? ' is-open' : ''}`, 'data-bar': bar.run }, this.body);
    make('rect', { width: '100%', height: '100%', class: 'bar-fill' }, holder);
    if (bar.leaving) make('rect', { width: '100%', height: '100%', fill: 'url(#hatch)' }, holder);
    const since = clock(new Date(bar.begin * 1000));
    const until = bar.end ? clock(new Date(bar.end * 1000)) : this.openEnd;
    const said = `${bar.name} (${bar.person})\n${since} – ${until}${bar.leaving ? '\nasked to give the slot back' : ''}${more ? `\n${more}` : ''}\n${bar.reason}`;
    make('title', {}, holder).textContent = said;
    if (mine) holder.addEventListener('click', () => this.open(bar.run));
    holder.addEventListener('pointerenter', () => this.highlight(bar.run));
    holder.addEventListener('pointerleave', () => this.highlight(null));
    this.bars.push({ element: holder, begin: bar.begin, end: bar.end });
  }

  /** Whose bar it is: above every hatch and line, so that it can be read. @param {any} bar @param {number} y @param {number} height
   * @param {string} more of who comes after */
  word(bar, y, height, more) {
    const holder = make('svg', { y, height, class: `bar-word run-${bar.run % COLOURS}`, 'data-bar': bar.run }, this.words);
    const text = make('text', { x: PAD, y: height / 2 + 4, class: 'bar-text' }, holder);
    this.bars.push({ element: holder, begin: bar.begin, end: bar.end, word: { text, name: bar.name, person: bar.person + more, room: -1 } });
  }

  /** @param {number | null} run */
  highlight(run) {
    this.onFocus?.(run);
    this.mark(run);
  }

  /** @param {number | null} run */
  mark(run) {
    this.svg.classList.toggle('has-focus', run !== null);
    for (const each of this.svg.querySelectorAll('[data-bar]')) each.classList.toggle('is-focus', Number(each.getAttribute('data-bar')) === run);
  }

  /** Place everything for a window of time (Unix seconds). @param {number} begin @param {number} end */
  place(begin, end) {
    const width = this.box.clientWidth;
    if (!width || !this.answer) return;
    [this.begin, this.end] = [begin, end];
    const inner = Math.max(10, width - LEFT - RIGHT);
    const scale = inner / Math.max(1, end - begin);
    const x = (/** @type {number} */ t) => LEFT + Math.min(inner, Math.max(0, (t - begin) * scale));
    for (const lane of this.body.querySelectorAll('.lane, .lane-away')) lane.setAttribute('width', String(inner));
    for (const bar of this.bars) {
      const from = x(bar.begin);
      const to = x(bar.end ?? end);
      bar.element.setAttribute('x', from.toFixed(1));
      bar.element.setAttribute('width', Math.max(to > LEFT && from < LEFT + inner ? 1 : 0, to - from).toFixed(1));
      if (bar.word) fitWord(bar.word, Math.floor(to - from) - 2 * PAD);
    }
    this.ticks(begin, end, x, inner);
    this.lines(begin, end, x);
    this.put(this.event, this.eventAt);
  }

  /** The moment under a place of the picture; null beside the lanes. @param {number} left pixels from the box's left edge */
  moment(left) {
    const inner = Math.max(10, this.box.clientWidth - LEFT - RIGHT);
    const share = (left - LEFT) / inner;
    return share < 0 || share > 1 ? null : this.begin + share * (this.end - this.begin);
  }

  /** @param {Element} line @param {number | null} t */
  put(line, t) {
    const inner = Math.max(10, this.box.clientWidth - LEFT - RIGHT);
    const shown = Boolean(t) && t >= this.begin && t <= this.end;
    line.setAttribute('visibility', shown ? 'visible' : 'hidden');
    if (!shown) return;
    const x = (LEFT + (((t || 0) - this.begin) / (this.end - this.begin)) * inner).toFixed(1);
    line.setAttribute('x1', x);
    line.setAttribute('x2', x);
  }

  /** The line that follows the reader's hand, here and in the curves. @param {number | null} t */
  cursor(t) {
    this.put(this.hand, t);
  }

  /** The event that the reader has gone to. @param {number} t */
  goTo(t) {
    this.eventAt = t;
    this.put(this.event, t);
  }

  /** @param {number} begin @param {number} end @param {(t: number) => number} x @param {number} inner */
  ticks(begin, end, x, inner) {
    const found = moments(begin, end, inner);
    const words = labels(found);
    const nodes = [];
    found.forEach((t, i) => {
      nodes.push(make('line', { x1: x(t), x2: x(t), y1: (this.height || 0) - AXIS, y2: (this.height || 0) - AXIS + 5, class: 'tick' }));
      if (!hasRoom(x(t) - LEFT, inner)) return;
      const label = make('text', { x: x(t), y: (this.height || 0) - 6, 'text-anchor': 'middle' });
      label.textContent = words[i];
      nodes.push(label);
    });
    this.axis.replaceChildren(...nodes);
  }

  /** Where members of a run changed. @param {number} begin @param {number} end @param {(t: number) => number} x */
  lines(begin, end, x) {
    const shown = this.marks.filter((m) => m.t >= begin && m.t <= end).slice(-200);
    this.over.replaceChildren(
      ...shown.map((m) => make('line', { x1: x(m.t), x2: x(m.t), y1: 0, y2: (this.height || 0) - AXIS, class: 'change' })),
    );
  }
}
