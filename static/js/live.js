// @ts-check
/* One WebSocket per page, push only.

   Elements with data-live="run-7 cluster" are refetched through htmx (event "refresh", morph swap) when one of their topics says "changed",
   at most four times a second each; data-what="state slots" narrows that to changes of these kinds. data-topics on <main> subscribes without refetching. Other modules listen to messages with `on`.
   When the server has subscribed the page to a topic, its elements are refetched: something may have happened since the rendering. */

const MIN_GAP_MS = 250;
const PATIENCE = 4; // a server that takes long is asked less often: at most a quarter of its time goes into one element
const CALM_GAP_MS = 1500; // for what also arrives as points
const SAFETY_NET_MS = 30000;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30000;
const FIRST_SPREAD_MS = 1000;
const LONGEST_SPREAD_MS = 15000;

const CHOOSES = 'dialog[open], details[open].menu, details[open]:has(textarea), select:focus, input:focus:not([type="search"], [type="checkbox"])';

/** @type {WebSocket | null} */
let socket = null;
let attempt = 0;
/** After an outage every page of everybody fetches again: each element at a moment of its own in this time, longer after a long one. */
let spread = 0;
/** @type {Set<string>} */
let subscribed = new Set();
/** Those of them that the server has confirmed. @type {Set<string>} */
let granted = new Set();
/** @type {Map<string, ((message: any) => void)[]>} */
const listeners = new Map();
/** When an element was asked for last, the timer of the next time, how long the last answer took, and whether it has become what somebody chose since it was asked for. @type {WeakMap<Element, {last: number, timer: number, cost: number, chosen: boolean}>} */
const refreshes = new WeakMap();

/** Call `handler` for every message of a type: "points", "slots", "changed", "completed", "hello", "subscribed". Who comes later is told of "subscribed" at once. @param {string} type @param {(message: any) => void} handler */
export function on(type, handler) {
  listeners.set(type, [...(listeners.get(type) || []), handler]);
  if (type === 'subscribed' && granted.size) handler({ type, topics: [...granted] });
}

function topics() {
  const found = new Set();
  for (const element of document.querySelectorAll('[data-live], [data-topics]')) {
    const names = `${element.getAttribute('data-live') || ''} ${element.getAttribute('data-topics') || ''}`;
    for (const name of names.split(/\s+/)) if (name) found.add(name);
  }
  return found;
}

/** @param {string} state @param {string} text */
function show(state, text) {
  const sign = document.getElementById('live');
  if (!sign || sign.dataset.state === state) return;
  sign.hidden = false;
  sign.dataset.state = state;
  const label = sign.querySelector('span');
  if (label) label.textContent = text;
  sign.title = text;
}

function connect() {
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
  socket = new WebSocket(`${scheme}://${location.host}/ws/`);
  socket.addEventListener('open', () => {
    subscribed = new Set();
    granted = new Set();
    subscribe();
  });
  socket.addEventListener('message', (event) => receive(JSON.parse(event.data)));
  socket.addEventListener('close', (event) => closed(event.code));
}

/** @param {number} code */
function closed(code) {
  socket = null;
  if ((code === 4401 || code === 4403) && reload()) return; // logged out, or no longer to see this: the server says which
  show('reconnecting', 'Reconnecting');
  attempt += 1;
  spread = Math.min(LONGEST_SPREAD_MS, FIRST_SPREAD_MS * 2 ** (attempt - 1));
  // Without a socket the page stays current by asking; a login that has ended shows here too (the answer is a redirect).
  if (attempt > 1) refreshAll();
  const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (attempt - 1));
  setTimeout(connect, wait * (0.3 + 0.7 * Math.random()));
}

/** Not while a form is on its way (it may delete this page), nor from an open panel: chosen files would be lost. */
function reload() {
  if (document.querySelector('form [aria-busy], dialog[open]')) return false;
  document.dispatchEvent(new CustomEvent('leaving'));
  location.reload();
  return true;
}

/** @param {any} message */
function receive(message) {
  if (message.type === 'hello') {
    attempt = 0;
    show('live', 'Live');
  }
  if (message.type === 'subscribed') {
    for (const topic of message.topics) granted.add(topic);
    for (const element of document.querySelectorAll('[data-live]')) {
      if (words(element, 'data-live').some((topic) => message.topics.includes(topic))) setTimeout(() => refresh(element), spread * Math.random());
    }
  }
  if (message.type === 'changed') {
    const calm = message.what.every((/** @type {string} */ what) => what === 'progress');
    for (const element of document.querySelectorAll('[data-live]')) {
      if (concerns(element, message)) refresh(element, calm ? CALM_GAP_MS : MIN_GAP_MS);
    }
  }
  if (message.type === 'refused' && granted.has(message.topic)) lost(message.topic);
  for (const handler of listeners.get(message.type) || []) handler(message);
}

/** What the page shows is deleted, or no longer this person's to see: the server says which. @param {string} topic */
function lost(topic) {
  granted.delete(topic);
  subscribed.delete(topic);
  const parts = [...document.querySelectorAll('[data-live]')].filter((element) => words(element, 'data-live').includes(topic));
  for (const element of parts) refresh(element);
  if (!parts.length && document.querySelector(`main[data-topics~="${CSS.escape(topic)}"]`)) reload();
}

/** A log is asked for once, wherever the page stands in it by now. @param {string} topic */
const followed = (topic) => topic.split('@')[0];

export function subscribe() {
  if (!socket || socket.readyState !== WebSocket.OPEN) return;
  const fresh = [...topics()].filter((name) => !subscribed.has(followed(name)));
  if (!fresh.length) return;
  fresh.forEach((name) => subscribed.add(followed(name)));
  socket.send(JSON.stringify({ subscribe: fresh }));
}

/** @param {Element} element @param {string} name */
function words(element, name) {
  return (element.getAttribute(name) || '').split(/\s+/).filter(Boolean);
}

/** @param {Element} element @param {any} message */
function concerns(element, message) {
  const kinds = words(element, 'data-what');
  return words(element, 'data-live').includes(message.topic) && (!kinds.length || message.what.some((/** @type {string} */ what) => kinds.includes(what)));
}

/** @param {Element} element */
function knownOf(element) {
  const known = refreshes.get(element) || { last: 0, timer: 0, cost: 0, chosen: false };
  refreshes.set(element, known);
  return known;
}

/** Ask htmx to refetch an element now, or as soon as its last time is `gap` ms ago. @param {Element} element */
export function refresh(element, gap = MIN_GAP_MS) {
  const known = knownOf(element);
  if (known.timer) return;
  const wait = Math.max(0, known.last + Math.max(gap, PATIENCE * known.cost) - Date.now());
  known.timer = window.setTimeout(() => {
    known.timer = 0;
    known.last = Date.now();
    if (!element.isConnected || element.closest('details.disclosure:not([open])')) return; // what is closed is fetched when it is opened
    if (busy(element)) setTimeout(() => refresh(element), 1000);
    else {
      known.chosen = false;
      element.dispatchEvent(new CustomEvent('refresh'));
    }
  }, wait);
}

/** Someone is choosing something in there, or what they chose, also in a form around it, is on its way (it would be undone): wait until they
   are done. @param {Element} element */
function busy(element) {
  return Boolean(element.querySelector(`${CHOOSES}, .htmx-request`) || element.parentElement?.closest('.htmx-request'));
}

export function refreshAll() {
  document.querySelectorAll('[data-live]').forEach((element) => refresh(element));
}

export function start() {
  document.addEventListener('htmx:after:swap', subscribe);
  document.addEventListener('htmx:finally:request', (event) => {
    const known = refreshes.get(/** @type {Element} */ (event.target));
    if (known) known.cost = Math.min(5000, Date.now() - known.last);
  });
  document.addEventListener('htmx:before:swap', (event) => {
    const context = /** @type {CustomEvent} */ (event).detail.ctx;
    const element = /** @type {Element} */ (event.target);
    const live = element.matches('[data-live]');
    if (live && (element.querySelector(`${CHOOSES}, .htmx-request:not([data-live])`) || knownOf(element).chosen)) {
      event.preventDefault(); // someone has begun to choose in there, or has chosen, while it was on its way: it is asked for again
      setTimeout(() => refresh(element), element.querySelector(CHOOSES) ? 1000 : 0);
      return;
    }
    if (!context.response) return;
    // A fragment that is no longer ours to see (logged out, member removed): let the server answer for the whole page. Of an action that was
    // refused the page says so (app.js).
    if (context.response.raw.redirected || context.response.status >= 400) {
      event.preventDefault();
      if (context.response.raw.redirected || (live && context.response.status < 500)) reload();
    } else if (!live && context.target instanceof Element && context.target.matches('[data-live]')) knownOf(context.target).chosen = true;
  });
  if (!topics().size) return;
  show('connecting', 'Connecting');
  connect();
  on('completed', (message) => {
    const text = `Run ${message.run} ${message.state === 'failed' ? 'has failed' : `is ${message.state}`}.`;
    document.dispatchEvent(new CustomEvent('toast', { detail: { text, kind: message.state === 'failed' ? 'error' : 'success', quiet: true } }));
  });
  const again = () => {
    if (!document.hidden) refreshAll(); // a message may have been lost on its way
    setTimeout(again, SAFETY_NET_MS * (0.75 + Math.random() / 2)); // pages that were opened together do not stay together
  };
  setTimeout(again, SAFETY_NET_MS * (0.75 + Math.random() / 2));
  window.addEventListener('pageshow', (event) => {
    if (event.persisted) location.reload();
  });
}
