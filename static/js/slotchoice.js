// @ts-check
/* The legend below the charts of the slots' use, which is also the choice of single slots: what the band and the line are, and a button for each
   slot with a sample of its line and its values under the cursor. Many slots are folded away, and found by their names. */

import { keep, kept } from './kept.js';
import { DASHES } from './use.js';

/** @typedef {import('./use.js').Use} Use */

const SVG = 'http://www.w3.org/2000/svg';
const NONE = 'none'; // in the address: not even those that are drawn without being asked for
const UNFOLDED = 12;

/** A sample of a line; `place` is among the chosen, null: of the band and the line of all. @param {number | null} place */
function sample(place) {
  const svg = document.createElementNS(SVG, 'svg');
  for (const [name, value] of Object.entries({ class: 'use-sample', width: 28, height: 10, 'aria-hidden': 'true', focusable: 'false' })) svg.setAttribute(name, String(value));
  const line = document.createElementNS(SVG, 'line');
  for (const [name, value] of Object.entries({ x1: 0, x2: 28, y1: 5, y2: 5, 'stroke-width': 2 })) line.setAttribute(name, String(value));
  line.setAttribute('class', place === null ? 'use-line' : `use-line slot-line-${place + 1}`);
  if (place !== null) line.setAttribute('stroke-dasharray', DASHES[place].join(' '));
  if (place === null) {
    const band = document.createElementNS(SVG, 'rect');
    for (const [name, value] of Object.entries({ class: 'use-band', width: 28, height: 10 })) band.setAttribute(name, String(value));
    svg.append(band);
  }
  svg.append(line);
  return svg;
}

export class SlotChoice {
  /** @param {HTMLElement} host @param {HTMLInputElement} field what the table beside the charts is asked for with @param {Use} use @param {() => void} changed called when other slots are wanted */
  constructor(host, field, use, changed) {
    this.host = host;
    this.field = field;
    this.use = use;
    this.changed = changed;
    this.shown = '';
    /** @type {HTMLElement[]} */
    this.values = [];
    const asked = kept('slots');
    if (asked) use.wanted = asked === NONE ? [] : asked.split(',').map(Number).filter(Number.isFinite);
  }

  /** Bring the buttons up to the slots that the run has held and those that are chosen. */
  show() {
    const { slots, chosen, points, curves } = this.use;
    const nothing = !slots.length || !points.length;
    this.host.hidden = nothing || (this.host.hidden && !curves.byName.size); // a legend belongs to charts
    if (this.shown === `${slots}|${chosen}`) return;
    this.shown = `${slots}|${chosen}`;
    this.field.value = chosen.join(',');
    this.field.disabled = false;
    const focused = document.activeElement?.closest('[data-slot]')?.getAttribute('data-slot');
    const open = this.host.querySelector('details')?.open ?? false;
    const key = Object.assign(document.createElement('span'), { className: 'use-key' });
    key.append(sample(null), slots.length > 1 ? 'all slots, in the band from the least of one to the most' : 'all slots');
    this.values = [];
    const buttons = slots.map(([slot, label]) => this.button(slot, label));
    const drawn = buttons.filter((_, place) => chosen.includes(slots[place][0]));
    const others = buttons.filter((button) => !drawn.includes(button));
    this.host.replaceChildren(key, ...(slots.length < 2 ? [] : slots.length <= UNFOLDED ? buttons : [...drawn, this.folded(others, open)]));
    if (focused) /** @type {HTMLElement | null} */ (this.host.querySelector(`[data-slot="${focused}"]`))?.focus();
  }

  /** @param {number} slot @param {string} label */
  button(slot, label) {
    const place = this.use.chosen.indexOf(slot);
    const button = Object.assign(document.createElement('button'), { type: 'button', className: 'use-slot' });
    button.dataset.slot = String(slot);
    button.setAttribute('aria-pressed', String(place >= 0));
    button.disabled = place < 0 && this.use.chosen.length >= DASHES.length;
    if (place >= 0) button.append(sample(place));
    button.append(label);
    if (place >= 0) {
      const value = Object.assign(document.createElement('span'), { className: 'use-value quiet numbers' });
      value.setAttribute('aria-hidden', 'true'); // it follows the cursor; the table below says the same in words
      this.values.push(value);
      button.append(value);
    }
    button.addEventListener('click', () => this.choose(slot));
    return button;
  }

  /** Very many slots: out of sight and out of the way of the keyboard until they are wanted. @param {HTMLElement[]} buttons @param {boolean} open */
  folded(buttons, open) {
    const box = document.createElement('details');
    box.open = open;
    box.className = 'use-folded';
    const list = Object.assign(document.createElement('div'), { className: 'use-many', tabIndex: 0, role: 'group', ariaLabel: 'More slots' }); // it scrolls
    list.append(...buttons);
    box.append(Object.assign(document.createElement('summary'), { textContent: `Single slots (${buttons.length} more, ${DASHES.length} at once)` }), list);
    return box;
  }

  /** @param {number} slot */
  choose(slot) {
    const { chosen, slots } = this.use;
    const wanted = chosen.includes(slot) ? chosen.filter((each) => each !== slot) : [...chosen, slot];
    this.use.wanted = slots.map(([each]) => each).filter((each) => wanted.includes(each));
    keep({ slots: this.use.wanted.join(',') || NONE });
    this.changed();
  }

  /** @param {string[]} values of the chosen slots, in their order */
  read(values) {
    this.values.forEach((element, place) => {
      if (element.textContent !== values[place]) element.textContent = values[place] ?? '';
    });
  }
}
