// @ts-check
/* A log that is followed: the socket sends what is new from the byte where the page stands; what was missed is fetched. The search is the
   server's, over the whole log: while results are shown and the log grows, they are asked for again. */

import * as live from './live.js';

const MOST_CHARACTERS = 2_000_000;
const SAFETY_NET_MS = 10_000;
const SEARCH_AGAIN_MS = 2000;
const EMPTY_AGAIN_MS = 1500;

const pane = document.getElementById('log-pane');
const form = /** @type {HTMLFormElement | null} */ (document.getElementById('log-search'));
const follow = /** @type {HTMLInputElement | null} */ (document.getElementById('log-follow'));
const log = document.getElementById('log');
const state = document.getElementById('log-state');

/** Take in what comes, at the end of the log as it is shown. @param {HTMLElement} box @param {HTMLInputElement} following */
function tail(box, following) {
  let end = Number(box.dataset.end);
  const topic = `log-${box.dataset.run}-${box.dataset.name}`;
  let fetching = false;

  /** @param {{text: string, end: number}} part */
  const add = (part) => {
    box.append(part.text);
    end = part.end;
    box.dataset.topics = `${topic}@${end}`; // what a new connection asks for
    const text = box.textContent || '';
    if (text.length > MOST_CHARACTERS) box.textContent = text.slice(text.indexOf('\n', text.length - MOST_CHARACTERS / 2) + 1);
    if (following.checked) box.scrollTop = box.scrollHeight;
  };

  const missed = async () => {
    if (fetching || document.hidden) return;
    fetching = true;
    try {
      const address = `${box.dataset.log}?name=${encodeURIComponent(box.dataset.name || '')}&offset=${end}`;
      const response = await fetch(address, { headers: { Accept: 'application/json' } });
      if (response.status === 404 || response.redirected) return location.reload();
      const answer = await response.json();
      if (state) state.textContent = '';
      if (answer.begin === end && answer.end > end) add(answer);
    } catch {
      if (state) state.textContent = 'The studio does not answer; trying again.';
    } finally {
      fetching = false;
    }
  };

  live.on('log', (message) => {
    if (message.topic !== topic || message.end <= end) return;
    if (message.begin === end) add(message);
    else missed();
  });
  following.addEventListener('change', () => {
    if (following.checked) box.scrollTop = box.scrollHeight;
  });
  box.addEventListener('scroll', () => {
    // Scrolling up stops following, reaching the end goes on.
    following.checked = box.scrollTop + box.clientHeight >= box.scrollHeight - 24;
  });
  box.scrollTop = box.scrollHeight;
  setInterval(missed, SAFETY_NET_MS); // the file is the truth, whatever became of a message
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
if (pane && form) {
  if (!log) again(pane, form);
  form.elements.namedItem('level')?.addEventListener('change', () => form.requestSubmit());
  document.getElementById('here')?.scrollIntoView({ block: 'center' });
}
