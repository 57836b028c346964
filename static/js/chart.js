// @ts-check
/* What all charts share: a uPlot with Carbon's colours, that keeps its zoom while data arrives, marks changes of members, and says what it shows. */

/** @typedef {{at: number, label: string, title: string}} Mark  `at` on the chart's x axis */

/** @param {Element} element @param {string} name */
export const colour = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();

/** A name within a sentence: whatever its direction, it does not turn what stands around it. @param {string} name */
export const isolated = (name) => `\u2068${name}\u2069`;

/** A number as the server writes it (templatetags/studio.py, value): what is no finite number is stored as null. @param {number | null | undefined} n */
export function figure(n) {
  if (n === undefined) return '–';
  if (n === null) return 'not finite';
  if (n !== 0 && (Math.abs(n) < 1e-3 || Math.abs(n) >= 1e6)) return n.toExponential(3);
  return Math.abs(n) < 1000 ? String(Number(n.toPrecision(4))) : n.toFixed(0);
}

/** A number beside a tick. Ticks are round: few digits say them, and more would have no room. @param {number} n */
const tick = (n) => (n !== 0 && (Math.abs(n) < 1e-3 || Math.abs(n) >= 1e6) ? Number(n.toPrecision(4)).toExponential() : figure(n));

/** Distances between ticks of what is counted: there is no half step and no half worker. */
export const wholeNumbers = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

/** What the mark under the cursor says; '' where there is none within a few pixels. @param {any} u @param {Mark[]} marks */
export function nearest(u, marks) {
  const x = u.cursor.left;
  if (x === null || x === undefined || x < 0) return '';
  const close = marks.filter((mark) => Math.abs(u.valToPos(mark.at, 'x') - x) < 6);
  return close.length ? close[close.length - 1].title : '';
}

/** Vertical lines where members changed, with "4→2" beside them where there is room. @param {() => Mark[]} marks @param {HTMLElement} host */
export function markPlugin(marks, host) {
  return {
    hooks: {
      draw: (/** @type {any} */ u) => {
        const { ctx, bbox } = u;
        const ratio = window.devicePixelRatio || 1;
        ctx.save();
        ctx.strokeStyle = colour(host, '--text-helper');
        ctx.fillStyle = colour(host, '--text-secondary');
        ctx.font = `${11 * ratio}px "IBM Plex Sans", sans-serif`;
        ctx.textAlign = 'left';
        ctx.textBaseline = 'alphabetic';
        ctx.setLineDash([3 * ratio, 3 * ratio]);
        ctx.lineWidth = ratio;
        let free = -Infinity;
        for (const mark of marks()) {
          const x = Math.round(u.valToPos(mark.at, 'x', true));
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
          const width = ctx.measureText(mark.label).width + 8 * ratio;
          if (x < free || x + width > bbox.left + bbox.width) continue;
          ctx.fillText(mark.label, x + 4 * ratio, bbox.top + 11 * ratio);
          free = x + width;
        }
        ctx.restore();
      },
    },
  };
}

/** Axis, grid and cursor in the theme's colours. @param {HTMLElement} host @param {(values: number[]) => string[]} [labels] */
export function axes(host, labels) {
  const common = {
    stroke: colour(host, '--text-secondary'),
    font: '12px "IBM Plex Sans", sans-serif',
    grid: { stroke: colour(host, '--grid'), width: 1 },
    ticks: { stroke: colour(host, '--grid'), width: 1, size: 4 },
  };
  const x = /** @type {any} */ ({ ...common, size: 28, gap: 2, space: 70 });
  if (labels) Object.assign(x, { values: (/** @type {any} */ _, /** @type {number[]} */ splits) => labels(splits) });
  return [x, { ...common, size: 56, gap: 4, space: 30, values: (/** @type {any} */ _, /** @type {(number | null)[]} */ splits) => splits.map((n) => (n === null ? '' : tick(n))) }];
}

/** An x scale of plain numbers whose range is never empty: uPlot cannot divide nothing into ticks, and fills the memory trying. */
export const plainX = {
  time: false,
  range: (/** @type {any} */ _, /** @type {number | null} */ min, /** @type {number | null} */ max) =>
    min === null || max === null ? [min, max] : [min, max > min ? max : min + 1],
};

/** Single points would vanish: show them while there are few (uPlot's points.show). @param {any} u @param {number} i */
export const few = (u, i) => u.data[i].length < 40;

/** Likewise of a curve that shares the places of one with many more. @param {any} u @param {number} i @returns {boolean} */
export const sparse = (u, i) => u.data[i].filter((/** @type {unknown} */ value) => value !== null && value !== undefined).length < 60;

/** A value between two gaps is no line: it is shown as a point (uPlot's points.filter). What is undefined is no gap, there is nothing of this
    curve at that place. @param {any} u @param {number} i @param {boolean} all whether all points are shown anyway @returns {number[] | null} */
export function alone(u, i, all) {
  if (all) return null;
  const found = [];
  let [first, length] = [0, 0];
  for (const [place, value] of [...u.data[i], null].entries()) {
    if (value === undefined) continue;
    if (value === null && length === 1) found.push(first);
    if (value !== null && !length) first = place;
    length = value === null ? 0 : length + 1;
  }
  return found.length ? found : null;
}

/** Whether there is nothing to draw. @param {any[][]} data */
export const blank = (data) => data.slice(1).every((values) => values.every((value) => value === null || value === undefined));

/** Seconds since a start, for an axis: 0:40, 12:05, 1:02:00. @param {number} start */
export const elapsed = (start) => (/** @type {number[]} */ splits) =>
  splits.map((t) => {
    const s = Math.round(t - start);
    const sign = s < 0 ? '-' : '';
    const whole = Math.abs(s);
    const h = Math.floor(whole / 3600);
    const m = Math.floor((whole % 3600) / 60);
    const rest = String(whole % 60).padStart(2, '0');
    return h ? `${sign}${h}:${String(m).padStart(2, '0')}:${rest}` : `${sign}${m}:${rest}`;
  });

/** Exponential moving average without the bias to the first value; gaps stay gaps. @param {(number | null | undefined)[]} values @param {number} weight */
export function smooth(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let norm = 0;
  return values.map((v) => {
    if (v === null || v === undefined) return v;
    sum = sum * weight + v * (1 - weight);
    norm = norm * weight + (1 - weight);
    return sum / norm;
  });
}

/** Keep a chart as wide as its box. @param {any} chart @param {HTMLElement} box @param {number} height */
export function fit(chart, box, height) {
  const observer = new ResizeObserver(() => {
    const width = Math.floor(box.clientWidth);
    if (width && width !== chart.width) chart.setSize({ width, height });
  });
  observer.observe(box);
  return () => observer.disconnect();
}
