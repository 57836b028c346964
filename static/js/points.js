// @ts-check
/* Points of a run without a gap and without a double: each message says which journal lines it covers (after, seq]. */

import * as live from './live.js';
import { setTime, spell } from './times.js';

const SLOW_RELOAD_MS = 1500;
const YEARS_S = 10 * 365 * 86400; // an end that is farther away is not said

/**
 * Follow a run's points.
 * @param {number} run
 * @param {{load: () => Promise<number>, points: string, add: (points: any[]) => boolean, progress?: (p: any) => void, changed?: (what: string[]) => boolean, line?: () => Promise<number>}} page
 *   load: fetch everything, answer with the journal line it reaches; add: take points in, true when they have become too many; line: the last
 *   journal line that the server has, which a page of many runs asks of all of them at once, so that only those with more are asked for points.
 * @returns {() => void} fetches everything anew
 */
export function follow(run, page) {
  let seq = -1; // nothing loaded yet
  let fetching = false;
  let again = false;
  let anew = false; // what follows will not do: all of it
  let timer = 0;

  async function reload() {
    if (fetching) return void (anew = true);
    fetching = true;
    try {
      seq = await page.load();
    } catch {
      setTimeout(reload, SLOW_RELOAD_MS * 2); // the server is away for a moment
    } finally {
      fetching = false;
    }
    goOn();
  }

  /** With what was asked for while something was fetched. */
  function goOn() {
    const [all, more] = [anew, again];
    anew = again = false;
    if (all) reload();
    else if (more) catchUp();
  }

  async function catchUp() {
    if (seq < 0) return reload();
    if (fetching) return void (again = true);
    fetching = true;
    let far = false;
    try {
      far = !(page.line && (await page.line()) === seq) && (await more());
    } catch {
      again = false; // the next message, or the next connection, asks again
    } finally {
      fetching = false;
    }
    if (far) anew = true;
    goOn();
  }

  /** Takes the points of later lines in; true where they are too many. */
  async function more() {
    const response = await fetch(`${page.points}?after=${seq}`, { headers: { Accept: 'application/json' } });
    const answer = await response.json();
    if (!answer.reload) take(answer);
    return Boolean(answer.reload);
  }

  /** The curves may have been loaded with these lines already, and the progress that they brought is not on the page yet. @param {any} message */
  function take(message) {
    if (message.seq < seq) return;
    if (message.seq > seq && page.add(message.points)) slowly();
    seq = message.seq;
    if (page.progress && message.progress) page.progress(message.progress);
  }

  /** Fetch everything anew, soon and once. */
  function slowly() {
    if (!timer) timer = window.setTimeout(() => ((timer = 0), reload()), SLOW_RELOAD_MS / 3);
  }

  live.on('points', (message) => {
    if (message.topic !== `run-${run}`) return;
    if (seq < 0 || fetching) return void (again = true);
    if (message.after <= seq) take(message);
    else catchUp();
  });
  live.on('subscribed', (message) => {
    if (!message.topics.includes(`run-${run}`)) return;
    if (seq < 0) again = true; // the first answer may be older than the subscription
    else catchUp();
  });
  live.on('changed', (message) => {
    if (message.topic !== `run-${run}`) return;
    if (page.changed?.(message.what)) slowly();
    else if (message.what.includes('points')) catchUp(); // too many to push
  });
  reload();
  return reload;
}

/** Put a run's progress into the elements that show it, between two refetches: its pace only while it trains. @param {Element | null} box @param {any} p */
export function showProgress(box, p) {
  if (!box) return;
  const total = Number(box.getAttribute('data-total'));
  /** @param {string} field @param {string} text */
  const put = (field, text) => {
    const element = box.querySelector(`[data-f="${field}"]`);
    if (element && element.textContent !== text) element.textContent = text;
  };
  if (typeof p.step === 'number') {
    put('step', p.step.toLocaleString('en'));
    const bar = box.querySelector('[data-f="bar"]');
    if (bar instanceof HTMLProgressElement) bar.value = p.step;
  }
  if (p.bar) showBar(box, p.bar, put);
  if (typeof p.epoch === 'number') put('epoch', String(p.epoch));
  if (typeof p.rate === 'number' && box.getAttribute('data-state') === 'running') {
    put('rate', p.rate >= 10 ? p.rate.toFixed(1) : p.rate.toFixed(2));
    if (total && p.rate > 0) {
      const left = Math.max(0, total - p.step) / p.rate;
      put('left', spell(left));
      const end = box.querySelector('[data-f="end"] time');
      if (end && left < YEARS_S) setTime(end, new Date(Date.now() + 1000 * left));
    }
  }
}

/** What the script's own progress bar says. @param {Element} box @param {{done: number, total: number, left: number | null, label: string}} bar @param {(field: string, text: string) => void} put */
function showBar(box, bar, put) {
  const shown = box.querySelector('[data-f="bar"]');
  if (!(shown instanceof HTMLProgressElement) && !box.querySelector('[data-f="left"]')) return;
  if (shown instanceof HTMLProgressElement) [shown.max, shown.value] = [bar.total, bar.done];
  put('done', amount(bar.done));
  put('of', amount(bar.total));
  put('bar-label', bar.label || 'Progress');
  if (typeof bar.left === 'number' && box.getAttribute('data-state') !== 'unheard') put('left', spell(bar.left));
}

/** @param {number} value */
const amount = (value) => value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 1 : 0 });
