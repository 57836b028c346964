// @ts-check
/* What somebody had typed into a form when it turned out that they had been logged out is in it again after the login: kept in this tab, for the
   same person and page. Files, passwords and fields and forms with data-secret are not kept; nor anything longer than to the next page. */

const KEY = 'unsent';

/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Field */
/** `refused`: a page has said so. @typedef {{person: string, page: string, action: string, refused: boolean, fields: {name: string, value: string, checked: boolean}[]}} Unsent */

const here = () => location.pathname + location.search;
/** A field may be called method. @param {HTMLFormElement} form */
const isPost = (form) => form.getAttribute('method') === 'post';
const person = () => document.querySelector('.user-name')?.textContent || '';

/** What people fill in, and can see. @param {HTMLFormElement} form @returns {Field[]} */
const fields = (form) =>
  /** @type {Field[]} */ ([...form.elements]).filter((each) => each.matches('input, select, textarea') && each.name && !each.hasAttribute('data-secret') && !/^(hidden|password|file|submit|button)$/.test(each.type));

/** Before it is sent; `refused`: before the page goes without that. @param {HTMLFormElement} form */
function keep(form, refused = false) {
  const said = fields(form).map((each) => ({ name: each.name, value: each.value, checked: each instanceof HTMLInputElement && each.checked }));
  if (!said.length || !person() || form.hasAttribute('data-secret')) return;
  /** @type {Unsent} */
  const unsent = { person: person(), page: here(), action: form.getAttribute('action') || '', refused, fields: said };
  try {
    sessionStorage.setItem(KEY, JSON.stringify(unsent));
  } catch {
    // there is no room for it, or the browser keeps nothing
  }
}

/** Before a page that is not ours to see any more is asked for again: the form that somebody is filling in. */
function keepOpen() {
  const forms = [...document.querySelectorAll('main form')].filter((form) => form instanceof HTMLFormElement && isPost(form) && !form.hasAttribute('hx-post'));
  const open = /** @type {HTMLFormElement[]} */ (forms).find((form) => fields(form).some(changed));
  if (open) keep(open, true);
}

/** @param {Field} field */
function changed(field) {
  if (field instanceof HTMLSelectElement) return [...field.options].some((option) => option.selected !== option.defaultSelected && field.selectedIndex > 0);
  if (field instanceof HTMLInputElement && /^(checkbox|radio)$/.test(field.type)) return field.checked !== field.defaultChecked;
  return field.value !== field.defaultValue;
}

/** @returns {Unsent | null} */
function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) || 'null');
  } catch {
    return null;
  }
}

/** @param {HTMLFormElement} form @param {Unsent} unsent whether anything in it differs from what the page came with */
function fill(form, unsent) {
  /** @type {Map<string, number>} how many fields of a name have had theirs */
  const places = new Map();
  let changed = false;
  for (const field of fields(form)) {
    const place = places.get(field.name) || 0;
    places.set(field.name, place + 1);
    const was = unsent.fields.filter((each) => each.name === field.name)[place];
    if (!was) continue;
    if (field instanceof HTMLInputElement && /^(checkbox|radio)$/.test(field.type)) {
      if (field.value !== was.value || field.checked === was.checked) continue;
      field.checked = was.checked;
    } else if (field.value === was.value) continue;
    else field.value = was.value;
    changed = true;
    field.closest('details')?.setAttribute('open', '');
    for (const type of ['input', 'change']) field.dispatchEvent(new Event(type, { bubbles: true }));
  }
  return changed;
}

/** @param {HTMLFormElement} form */
function say(form) {
  const note = document.createElement('p');
  note.className = 'note note-info';
  note.setAttribute('role', 'status');
  note.textContent = 'What you had filled in is here again. It has not been sent: choose files and training definitions again, look it over, and send it.';
  form.prepend(note);
}

export function start() {
  document.addEventListener('submit', (event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (!event.defaultPrevented && isPost(form) && !form.hasAttribute('hx-post')) keep(form);
  });
  document.addEventListener('leaving', keepOpen);
  const unsent = kept();
  if (!unsent) return;
  const asksToLogIn = new URLSearchParams(location.search).get('next') === unsent.page && !person();
  if (asksToLogIn || document.querySelector('.error-page')) {
    sessionStorage.setItem(KEY, JSON.stringify({ ...unsent, refused: true }));
    return;
  }
  sessionStorage.removeItem(KEY);
  if (!unsent.refused || unsent.person !== person() || unsent.page !== here()) return;
  const form = [...document.forms].find((each) => isPost(each) && (each.getAttribute('action') || '') === unsent.action && fields(each).length);
  if (form && fill(form, unsent)) say(form);
}
