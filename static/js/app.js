// @ts-check
/* Every page's entry: times, the live socket, menus, dialogs, small form comforts. Pages add their own module beside it. */

import { ask } from './ask.js';
import * as csrf from './csrf.js';
import * as live from './live.js';
import * as shortcuts from './shortcuts.js';
import * as times from './times.js';

/** Menus are <details>: they work without this, which closes them on Escape, on a click elsewhere and on a link to this very page, and opens
    the part of the page that such a link leads to. */
function menus() {
  document.addEventListener('click', (event) => {
    const target = /** @type {Element} */ (event.target);
    const link = target.closest?.('details[data-menu] a[href^="#"]');
    for (const menu of document.querySelectorAll('details[data-menu][open]')) {
      if (link || !menu.contains(target)) menu.removeAttribute('open');
    }
    if (link) document.querySelector(link.getAttribute('href') || '')?.querySelector('details')?.setAttribute('open', '');
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    for (const menu of document.querySelectorAll('details[data-menu][open]')) {
      menu.removeAttribute('open');
      menu.querySelector('summary')?.focus();
    }
  });
}

/** <button data-dialog="ID"> opens, data-close closes; what the button controls also works as a plain page section. */
function dialogs() {
  document.addEventListener('click', (event) => {
    const target = /** @type {Element} */ (event.target);
    const opener = target.closest('[data-dialog]');
    if (opener) {
      const dialog = document.getElementById(opener.getAttribute('data-dialog') || '');
      if (dialog instanceof HTMLDialogElement) {
        event.preventDefault();
        dialog.showModal();
      }
    }
    const closer = target.closest('[data-close]');
    if (closer) {
      event.preventDefault();
      closer.closest('dialog')?.close();
    }
    if (target instanceof HTMLDialogElement && target.open) target.close();
  });
}

/** A random one (version 4); `crypto.randomUUID` is there on https only. */
function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** A form that was sent is not sent again while it is on its way. */
function oneSubmit() {
  document.addEventListener('submit', (event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (event.defaultPrevented || form.getAttribute('method') !== 'post' || form.hasAttribute('hx-post')) return; // a field may be called method
    const button = /** @type {SubmitEvent} */ (event).submitter;
    setTimeout(() => {
      for (const each of form.querySelectorAll('button')) each.disabled = true;
      button?.setAttribute('aria-busy', 'true');
    });
  });
  window.addEventListener('pageshow', (event) => {
    // A page that the browser kept as it was would send the key of what it has made already, and make nothing.
    if (event.persisted) for (const key of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll('input[name=idempotency_key]'))) key.value = uuid();
    for (const each of document.querySelectorAll('[aria-busy]')) {
      each.removeAttribute('aria-busy');
      for (const button of each.closest('form')?.querySelectorAll('button') || []) button.disabled = false;
    }
  });
}

/** What is shown once, as the answer to a form, is not made again by a reload: that opens the page anew. */
function shownOnce() {
  if (document.querySelector('[data-once]')) history.replaceState(history.state, '', location.href);
}

/** The theme changes at once; the form tells the server. What is drawn is drawn anew, also where the system goes from day to night, and for paper. */
function themes() {
  const again = () => document.dispatchEvent(new CustomEvent('theme'));
  for (const query of ['(prefers-color-scheme: dark)', 'print']) matchMedia(query).addEventListener('change', again);
  document.querySelector('[data-theme-form]')?.addEventListener('submit', (event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const button = /** @type {HTMLButtonElement} */ (/** @type {SubmitEvent} */ (event).submitter);
    const data = new FormData(form);
    data.set('theme', button.value);
    fetch(form.action, { method: 'POST', body: data, redirect: 'manual' }).catch(() => form.submit());
    document.documentElement.dataset.theme = button.value;
    for (const each of form.querySelectorAll('[name=theme]')) each.setAttribute('aria-pressed', String(each === button));
    document.dispatchEvent(new CustomEvent('theme'));
  });
}

/** What an action without a reload answered: said once, at the foot of the window. What was done closes its dialog; what was refused stays there,
    as it was typed. */
function toasts() {
  document.addEventListener('toast', (event) => {
    const said = /** @type {CustomEvent} */ (event).detail;
    document.getElementById('toast')?.remove();
    if (!said.quiet && said.kind !== 'error') document.querySelectorAll('dialog[open]').forEach((dialog) => /** @type {HTMLDialogElement} */ (dialog).close());
    const box = document.createElement('div');
    box.id = 'toast';
    box.className = `note note-${said.kind === 'error' ? 'error' : 'success'} toast`;
    box.setAttribute('role', said.kind === 'error' ? 'alert' : 'status');
    box.textContent = said.text;
    (document.querySelector('dialog[open]') || document.body).append(box); // below an open dialog nobody would see it
    setTimeout(() => box.remove(), said.kind === 'error' ? 12000 : 6000);
    if (said.quiet) return; // nobody pressed anything
    live.refreshAll();
  });
}

/** An action without a reload that came to nothing: said too. What keeps a part of the page fresh tries again by itself. */
function failures() {
  /** @param {Event} event @param {string} text */
  const say = (event, text) => {
    if (/** @type {Element} */ (event.target).closest('[data-live]') === event.target) return;
    document.dispatchEvent(new CustomEvent('toast', { detail: { text, kind: 'error', quiet: true } }));
  };
  document.addEventListener('htmx:error', (event) => say(event, 'The studio did not answer. Look whether it was done, and try again.'));
  document.addEventListener('htmx:response:error', (event) => {
    const { status } = /** @type {CustomEvent} */ (event).detail.ctx.response;
    if (status === 507) say(event, 'The studio’s disk is full: nothing was done.');
    else if (status >= 500) say(event, 'The studio could not do this: something went wrong there. Try again in a moment.');
    else if (status === 403) say(event, 'The studio refused this: you may not do it, or not any more. Nothing was changed; reload the page.');
    else if (status === 404) say(event, 'This is not there any more: it was deleted, or you may no longer see it. Reload the page.');
  });
}

const agreed = new WeakSet();

/** data-confirm="question" on a form, or on one of its buttons, asks first. */
function confirmations() {
  document.addEventListener(
    'submit',
    (event) => {
      const { submitter } = /** @type {SubmitEvent} */ (event);
      const form = /** @type {HTMLFormElement} */ (event.target);
      const question = submitter?.getAttribute('data-confirm') ?? form.getAttribute('data-confirm');
      if (!question || agreed.delete(form)) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      ask(question, submitter?.textContent?.trim() || 'Go on', /danger/.test(submitter?.className || '')).then((yes) => {
        if (yes) send(form, submitter);
      });
    },
    true,
  );
}

/** What a person has just said yes to is sent, also where its part of the page was fetched anew meanwhile.
    @param {HTMLFormElement} form @param {HTMLElement | null} submitter */
function send(form, submitter) {
  const button = submitter instanceof HTMLButtonElement ? submitter : null;
  const same = form.isConnected ? form : document.querySelector(`form[action="${CSS.escape(form.getAttribute('action') || '')}"]`);
  const twin = [...((same instanceof HTMLFormElement && same.elements) || [])].find(
    (each) => each instanceof HTMLButtonElement && each.name === button?.name && each.value === button?.value,
  );
  const by = !button || button.isConnected ? button : twin;
  if (!(same instanceof HTMLFormElement) || by === undefined) {
    document.dispatchEvent(new CustomEvent('toast', { detail: { text: 'The page has changed meanwhile: look again, then decide.', kind: 'error' } }));
    return;
  }
  agreed.add(same);
  same.requestSubmit(/** @type {HTMLElement | null} */ (by));
}

/** The tab list scrolls sideways on a small screen: bring the current one into view. */
function currentTab() {
  const current = document.querySelector('.tabs [aria-current]');
  if (current instanceof HTMLElement && current.offsetLeft > window.innerWidth / 2) {
    const box = /** @type {Element} */ (current.closest('.tabs'));
    box.scrollLeft = current.offsetLeft - 32;
  }
}

csrf.start();
confirmations();
menus();
dialogs();
oneSubmit();
shownOnce();
themes();
toasts();
failures();
currentTab();
shortcuts.start();
times.start();
live.start();
import('./unsent.js').then((unsent) => unsent.start());
import('./readables.js').then((readables) => readables.start());
import('./read.js').then((read) => read.start());
// Most pages have no form that is looked at while it is filled in.
const check = () => document.querySelector('[data-check]') && import('./checking.js').then((checking) => checking.look());
check();
document.addEventListener('htmx:after:swap', check);
