// @ts-check
/* The futures of everybody's slots: as things are and as they might be, one above the other on one axis of time. What is drawn stands in the
   answer, as JSON; the table below it says the same. */

import { Lanes } from './lanes.js';
import { clock } from './times.js';

const OPEN_END = 'no known end';

/** The lanes as lanes.js has them: names and times stand in the answer once, for there may be thousands of bars. @param {any} answer
 * @param {any[]} lanes */
function spelled(answer, lanes) {
  const bar = (/** @type {[number, number, number | null]} */ [run, begin, end]) => {
    const [name, person] = answer.runs[run];
    const until = end === null ? null : answer.begin + end;
    return { run, name, person, begin: answer.begin + begin, end: until, leaving: false, reason: '' };
  };
  return lanes.map((lane) => ({ ...lane, silent_since: null, reserved: null, bars: lane.bars.map(bar) }));
}

/** @param {HTMLElement} picture */
function draw(picture) {
  const answer = JSON.parse(picture.dataset.future || '{}');
  picture.dataset.drawn = '';
  const shown = [...picture.querySelectorAll('[data-future-lanes]')].map((box) => {
    const lanes = new Lanes(/** @type {HTMLElement} */ (box), (run) => (location.href = `/runs/${run}/`));
    lanes.openEnd = OPEN_END;
    lanes.show({ lanes: spelled(answer, answer[/** @type {HTMLElement} */ (box).dataset.futureLanes || '']), readable: answer.readable });
    return lanes;
  });
  // A run that is pointed at in one picture is shown in the other too.
  for (const lanes of shown) {
    lanes.onFocus = (run) => {
      for (const other of shown) if (other !== lanes) other.mark(run);
    };
  }
  new ResizeObserver(() => shown.forEach((lanes) => lanes.place(answer.begin, answer.begin + answer.seconds))).observe(picture);
}

/** When so many hours from now are, on the reader's clock: "in 8 hours" may be tonight. */
function clocks() {
  for (const option of /** @type {NodeListOf<HTMLOptionElement>} */ (document.querySelectorAll('select[name="job_in"] option:not([data-said])'))) {
    option.dataset.said = '';
    const then = new Date(Date.now() + 3600e3 * Number(option.value));
    if (Number(option.value)) option.text += `, ${then.toLocaleDateString(undefined, { weekday: 'short' })} ${clock(then).slice(0, 5)}`;
  }
}

function drawAll() {
  clocks();
  for (const picture of document.querySelectorAll('[data-future]:not([data-drawn])')) draw(/** @type {HTMLElement} */ (picture));
}

document.addEventListener('htmx:after:swap', drawAll);
drawAll();
