// @ts-check
/* Times in the reader's zone, exact ones on hover; running times that tick between updates, and those left that count down. */

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** @param {number} n */
const two = (n) => String(n).padStart(2, '0');

/** The clock time in the reader's zone. @param {Date} date */
export const clock = (date) => `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;

/** `about`: it is an estimate, to the minute. @param {Date} date @param {Date} now @param {boolean} about */
function readable(date, now, about) {
  if (date.toDateString() === now.toDateString()) return about ? clock(date).slice(0, 5) : clock(date);
  const day = `${date.getDate()} ${MONTHS[date.getMonth()]}`;
  const year = date.getFullYear() === now.getFullYear() ? '' : ` ${date.getFullYear()}`;
  return `${day}${year}, ${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** A length of time as the server spells it (templatetags/studio.py, spell), in whole seconds: it ticks. @param {number} seconds */
export function spell(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {Element} element @param {string} text */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {Element} element a <time>; data-about: it is an estimate @param {Date} now */
function local(element, now) {
  const date = new Date(element.getAttribute('datetime') || '');
  if (Number.isNaN(date.getTime())) return;
  write(element, readable(date, now, element.hasAttribute('data-about')));
  element.setAttribute('title', date.toLocaleString(undefined, { dateStyle: 'full', timeStyle: 'long' }));
}

/** Another moment for a <time>, written as the one that the page came with. @param {Element} element @param {Date} date */
export function setTime(element, date) {
  element.setAttribute('datetime', date.toISOString());
  local(element, new Date());
}

/** @param {ParentNode} root */
export function localTimes(root) {
  const now = new Date();
  for (const element of root.querySelectorAll('time[datetime]')) local(element, now);
  tick(root);
}

/** @param {ParentNode} root */
function tick(root) {
  const now = Date.now() / 1000;
  for (const element of root.querySelectorAll('[data-since]')) {
    write(element, spell(now - Number(element.getAttribute('data-since'))));
  }
  for (const element of root.querySelectorAll('[data-until]')) {
    const left = Number(element.getAttribute('data-until')) - now;
    write(element, left > 0 ? `within ${spell(left)}` : 'now');
  }
}

/** Pages whose days begin at midnight are told where. */
function zone() {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (name && !document.cookie.split('; ').includes(`zone=${name}`)) document.cookie = `zone=${name}; path=/; max-age=31536000; SameSite=Lax`;
}

export function start() {
  zone();
  localTimes(document);
  document.addEventListener('htmx:after:swap', () => localTimes(document));
  setInterval(() => tick(document), 1000);
}
