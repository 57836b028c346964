// @ts-check
/* Says what is wrong with a form while it is filled in, in the words with which it would be refused: [data-check] on one of its fields is the
   address that knows (views/checking.py). Only what was typed in is judged; one question at a time, after a pause, and none twice. What has
   changed beside the field where one types is told to a screen reader when there is time. */

import { renew } from './csrf.js';

const PAUSE_MS = 500;

/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Field */

/** @param {HTMLFormElement} form @param {string} address */
function watch(form, address) {
  /** @type {Set<Field>} */
  const touched = new Set();
  const status = Object.assign(document.createElement('p'), { className: 'visually-hidden' });
  status.setAttribute('role', 'status');
  form.append(status);
  let last = ''; // what was asked last
  let timer = 0;
  let asking = false;
  /** The field where one types. @type {Field | null} */
  let at = null;

  const body = () => {
    renew();
    const data = new FormData(form);
    for (const [name, value] of [...data.entries()]) if (value instanceof File) data.delete(name);
    const file = /** @type {HTMLInputElement | null} */ (form.querySelector('input[type=file]'))?.files?.[0];
    if (file) data.set('sent_bytes', String(file.size));
    if (form.dataset.scripts) data.set('scripts', form.dataset.scripts);
    return data;
  };

  const ask = async () => {
    const data = body();
    const said = new URLSearchParams(/** @type {any} */ (data)).toString();
    if (asking || said === last || !form.isConnected) return;
    asking = true;
    last = said;
    try {
      const response = await fetch(address, { method: 'POST', body: data, headers: { Accept: 'application/json' } });
      if (response.ok && !response.redirected) show(await response.json());
    } catch {
      // the form is checked when it is sent
    } finally {
      asking = false;
    }
    if (new URLSearchParams(/** @type {any} */ (body())).toString() !== last) later(); // typed meanwhile
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE_MS);
  };

  /** @param {{errors: Record<string, string[]>, notes: Record<string, string[]>}} found */
  const show = ({ errors, notes }) => {
    for (const field of touched) {
      if (!field.isConnected) continue;
      const same = [...form.querySelectorAll(`[name="${CSS.escape(field.name)}"]`)]; // a version may be there several times
      const words = errors[field.name] || errors[`${field.name}#${same.indexOf(field)}`] || [];
      const told = say(field, words, notes[field.name] || []);
      if (field === at && told !== null) status.textContent = told;
    }
  };

  form.addEventListener('input', (event) => {
    const field = /** @type {Field} */ (event.target);
    if (!field.name) return;
    at = field;
    touched.add(field);
    later();
  });
}

let made = 0; // ids that fields without one were given

/** Write the sentences beside their field; what there is now where it is other than before, else null. @param {Field} field @param {string[]} errors @param {string[]} notes */
function say(field, errors, notes) {
  const place = field.closest('.field, [data-command]') || field.parentElement;
  if (!field.id) field.id = `checked-${(made += 1)}`;
  const id = `${field.id}_error`;
  let box = document.getElementById(id);
  if (!box && !errors.length && !notes.length) return null;
  if (!box) {
    box = Object.assign(document.createElement('span'), { id });
    place?.append(box);
  }
  const before = box.textContent?.trim();
  const lines = [...errors.map((text) => ['error', text]), ...notes.map((text) => ['hint', text])];
  const now = lines.map(([, text]) => text).join(' ');
  if (errors.length) field.setAttribute('aria-invalid', 'true');
  else field.removeAttribute('aria-invalid');
  const described = new Set((field.getAttribute('aria-describedby') || '').split(' ').filter(Boolean));
  if (lines.length) described.add(id);
  else described.delete(id);
  if (described.size) field.setAttribute('aria-describedby', [...described].join(' '));
  else field.removeAttribute('aria-describedby');
  if (before === now) return null;
  box.replaceChildren(...lines.map(([className, textContent]) => Object.assign(document.createElement('span'), { className, textContent })));
  return now;
}

/** Watch the forms of the page that are not watched yet: once at its beginning, and whenever something has come into it. */
export function look() {
  for (const mark of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-check]'))) {
    const form = mark.closest('form');
    if (form && !form.dataset.checked) watch(form, mark.dataset.check || '');
    if (form) form.dataset.checked = 'yes';
  }
}
