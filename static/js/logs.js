// @ts-check
/* A log that is followed, or all of a run as one stream: the socket sends what is new from the byte where the page stands; what was missed is fetched. The search is the
   server's, over the whole log: while results are shown and the log grows, they are asked for again. */

import * as live from './live.js';
import * as terminal from './terminal.js';

const MOST_CHARACTERS = 2_000_000;
const SAFETY_NET_MS = 10_000;
const SEARCH_AGAIN_MS = 2000;
const EMPTY_AGAIN_MS = 1500;
const LONGEST_HALF = 4096; // characters that wait for the end of their line

const pane = document.getElementById('log-pane');
const form = /** @type {HTMLFormElement | null} */ (document.getElementById('log-search'));
const follow = /** @type {HTMLInputElement | null} */ (document.getElementById('log-follow'));
const log = document.getElementById('log');
const state = document.getElementById('log-state');

/** Take in what comes, at the end of the log, or of all logs together, as it is shown. @param {HTMLElement} box @param {HTMLInputElement} following */
function tail(box, following) {
  const run = `run-${box.dataset.run}`;
  const ours = `log-${box.dataset.run}-`;
  const most = Number(box.dataset.together || 0); // so many logs together; 0: it is one log
  /** Where the page stands in each log, by its topic. @type {Map<string, number>} */
  const ends = new Map();
  /** The beginning of a line whose end has not come. @type {Map<string, string>} */
  const halves = new Map();
  for (const each of (box.dataset.topics || '').split(/\s+/).filter(Boolean)) {
    const at = each.lastIndexOf('@');
    ends.set(each.slice(0, at), Number(each.slice(at + 1)));
  }
  let fetching = false;
  let ended = false; // the run, as the server has said
  let cut = false; // the middle of a log was left out: what stands here is no part of it any more
  let next = 0;

  const ask = () => {
    box.dataset.topics = [...ends].map(([topic, end]) => `${topic}@${end}`).join(' '); // what a new connection asks for
  };

  /** Whole lines, each with the name of its log. @param {string} topic @param {string} text */
  const named = (topic, text) => {
    const lines = ((halves.get(topic) || '') + text).split('\n');
    const half = lines.pop() || '';
    const drawn = half.lastIndexOf('\r', half.length - 2); // what stood before it will never be seen; at the end it may be half of a line's
    const kept = drawn < 0 ? half : half.slice(drawn);
    halves.set(topic, kept.length < LONGEST_HALF ? kept : '');
    if (kept.length >= LONGEST_HALF) lines.push(kept);
    const width = Math.max(...[...ends.keys()].map((each) => each.length - ours.length));
    return lines.map((line) => `${topic.slice(ours.length).padEnd(width)} | ${terminal.line(line)}\n`).join('');
  };

  /** @param {string} topic @param {{text: string, end: number}} part */
  const add = (topic, part) => {
    ends.set(topic, part.end);
    ask();
    if (most) box.append(named(topic, part.text));
    else terminal.append(box, part.text);
    const text = box.textContent || '';
    if (text.length > MOST_CHARACTERS) box.textContent = text.slice(text.indexOf('\n', text.length - MOST_CHARACTERS / 2) + 1);
    if (following.checked) box.scrollTop = box.scrollHeight;
  };

  /** Fetch what a log has from where the page stands on. False: the server does not answer, or the page is loaded again. @param {string} topic */
  const fetchNews = async (topic) => {
    try {
      let more = true;
      while (more) {
        const end = ends.get(topic) || 0;
        const address = `${box.dataset.log}?name=${encodeURIComponent(topic.slice(ours.length))}&offset=${end}`;
        const response = await fetch(address, { headers: { Accept: 'application/json' } });
        const answer = response.status === 404 || response.redirected ? { size: -1 } : await response.json();
        if (answer.size < end) return void location.reload(); // as `cut`
        if (state) state.textContent = '';
        if (answer.begin === ends.get(topic) && answer.end > end) add(topic, answer);
        ended ||= answer.ended;
        more = ended && answer.end < answer.size && ends.get(topic) !== end;
      }
      return true;
    } catch {
      if (state) state.textContent = 'The studio does not answer; trying again.';
      return false;
    }
  };

  /** @param {string} topic */
  const missed = async (topic) => {
    if (fetching || document.hidden) return;
    if (cut) return location.reload();
    fetching = true;
    try {
      if ((await fetchNews(topic)) && ended) await complete();
    } finally {
      fetching = false;
    }
  };

  /** The run has ended: take in what was written last. */
  const complete = async () => {
    for (const topic of ends.keys()) if (!(await fetchNews(topic))) return;
    for (const [topic, half] of halves) if (half) box.append(named(topic, '\n'));
    clearInterval(looks);
    following.closest('label')?.remove();
    const said = document.getElementById('log-complete');
    if (said) said.textContent = 'Complete: the run has ended.';
  };

  live.on('log', (message) => {
    const end = ends.get(message.topic);
    if (end === undefined) return;
    cut ||= message.size < end && !message.text;
    if (message.end <= end && !cut) return;
    if (message.begin === end && !cut) add(message.topic, message);
    else missed(message.topic);
  });
  document.addEventListener('htmx:after:swap', () => {
    // A worker that has just begun has a log that is to be shown from its beginning.
    for (const link of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-log-name]'))) {
      const topic = ours + link.dataset.logName;
      if (ends.size < most && !ends.has(topic)) ends.set(topic, 0);
    }
    ask();
    live.subscribe();
  });
  following.addEventListener('change', () => {
    if (following.checked) box.scrollTop = box.scrollHeight;
  });
  box.addEventListener('scroll', () => {
    // Scrolling up stops following, reaching the end goes on.
    following.checked = box.scrollTop + box.clientHeight >= box.scrollHeight - 24;
  });
  box.scrollTop = box.scrollHeight;
  // The files are the truth, whatever became of a message: they are looked at by turns.
  const look = () => missed([...ends.keys()][next++ % ends.size]);
  const looks = setInterval(look, SAFETY_NET_MS);
  live.on('completed', (message) => {
    if (message.topic !== run) return;
    ended = true;
    look();
  });
  live.on('subscribed', (message) => {
    if (message.topics.includes(run)) look(); // it may have ended since the page was rendered
  });
}

/** Results that stay true while the log grows. @param {HTMLElement} results @param {HTMLFormElement} search */
function again(results, search) {
  if (!new FormData(search).get('q') && !new FormData(search).get('level')) return;
  live.on('log', () => live.refresh(results, SEARCH_AGAIN_MS));
}

/** The page of a run without a log has nothing to lose: it is loaded again when something has happened to the run. */
function untilThereIsOne() {
  let soon = 0;
  live.on('changed', (message) => {
    if (!soon && message.topic.startsWith('run-')) soon = window.setTimeout(() => location.reload(), EMPTY_AGAIN_MS);
  });
}

if (document.getElementById('no-log')) untilThereIsOne();
if (log && follow) tail(log, follow);
else if (log) log.scrollTop = log.scrollHeight; // the run has ended: nothing comes any more
if (pane && form) {
  if (!log) again(pane, form);
  form.elements.namedItem('level')?.addEventListener('change', () => form.requestSubmit());
  document.getElementById('here')?.scrollIntoView({ block: 'center' });
}
