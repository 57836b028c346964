// @ts-check
/* The typed form of a script's arguments and its command, kept in step: a field changes its words of the command, and a command that is typed
   fills the fields. The command is what is sent; without script it is typed. How many runs it makes is said beside it. */

import { count, fromField, MOST, quoted, split, toField } from './grid.js';

const SCRIPT = /\.(py|ipynb)$/;

/** Where an argument stands in the words: its first word, how many it takes, and its value. @param {string[]} words @param {HTMLElement} field */
function found(words, field) {
  const { kind, off } = field.dataset;
  const flags = (field.dataset.flags || '').split(' ');
  for (let at = words.length - 1; at > 0; at -= 1) {
    const [name, value] = words[at].startsWith('--') && words[at].includes('=') ? [words[at].slice(0, words[at].indexOf('=')), words[at].slice(words[at].indexOf('=') + 1)] : [words[at], null];
    if (kind === 'flag' && off && words[at] === off) return { at, length: 1, value: 'off' };
    if (!flags.includes(name)) continue;
    if (kind === 'flag') return { at, length: 1, value: field.dataset.default === 'on' && !off ? 'off' : 'on' };
    if (value !== null) return { at, length: 1, value: kind === 'words' ? quoted(value) : toField(value) };
    let length = 1;
    const several = kind === 'words' ? words.length : 2;
    while (length < several && at + length < words.length && (!/^-/.test(words[at + length]) || /^-[.\d]/.test(words[at + length]))) length += 1;
    return { at, length, value: words.slice(at + 1, at + length).map((word) => (kind === 'words' ? quoted(word) : toField(word))).join(' ') };
  }
  return null;
}

/** What a field says as words of the command; none where that is the default. @param {HTMLElement} field */
function words(field) {
  const flag = (field.dataset.flags || '').split(' ')[0];
  const input = /** @type {HTMLInputElement | HTMLSelectElement} */ (field.querySelector('input, select'));
  if (input instanceof HTMLInputElement && input.type === 'checkbox') {
    const usual = field.dataset.default === 'on';
    if (input.checked === usual) return [];
    return [input.checked ? flag : field.dataset.off || flag];
  }
  const value = field.dataset.kind === 'words' ? input.value.trim() : fromField(input.value);
  if (!value || value === field.dataset.default) return [];
  return field.dataset.kind === 'words' ? [flag, ...(split(value) || [value])] : [flag, value];
}

/** @param {HTMLElement} box */
function parts(box) {
  const command = /** @type {HTMLInputElement} */ (box.querySelector('input[name^=command]'));
  const all = split(command.value) || [];
  const script = all.findIndex((word) => SCRIPT.test(word));
  const forms = /** @type {HTMLDetailsElement[]} */ ([...box.querySelectorAll('[data-arguments]')]);
  const name = script < 0 ? '' : all[script];
  const form = forms.find((each) => name && (each.dataset.arguments === name || name.endsWith(`/${each.dataset.arguments}`)));
  return { command, all, forms, form };
}

/** Fill the fields from the command. @param {HTMLElement} box */
function fill(box) {
  const { all, forms, form } = parts(box);
  for (const each of forms) each.hidden = each !== form && Boolean(form);
  for (const field of /** @type {NodeListOf<HTMLElement>} */ (form?.querySelectorAll('[data-flags]') || [])) {
    const input = /** @type {HTMLInputElement | HTMLSelectElement} */ (field.querySelector('input, select'));
    const there = found(all, field);
    if (input instanceof HTMLInputElement && input.type === 'checkbox') input.checked = (there ? there.value : field.dataset.default) === 'on';
    else if (input instanceof HTMLSelectElement) choose(input, there ? there.value : '');
    else input.value = there ? there.value : '';
  }
}

/** The option that says it; one more where none does: some of the choices, or what is none of them. @param {HTMLSelectElement} select @param {string} value */
function choose(select, value) {
  const same = [...select.options].find((option) => option.value === value || (value && fromField(option.value) === fromField(value)));
  if (!same) select.add(new Option(value, value));
  select.value = same ? same.value : value;
}

/** Beside each command, and for all of them beside the button, how many runs they make. */
function makes() {
  const global = /** @type {HTMLInputElement | null} */ (document.querySelector('input[name=global_command]'));
  const over = /** @type {HTMLInputElement | null} */ (document.querySelector('input[name=use_global]'));
  let all = 0;
  for (const box of document.querySelectorAll('[data-command]')) {
    const typed = /** @type {HTMLInputElement} */ (box.querySelector('input[name^=command]')).value;
    const runs = count(over?.checked && global ? global.value : typed);
    all += runs;
    said(box.querySelector('[data-makes]'), runs > MOST ? `Makes ${runs} runs: at most ${MOST} are made at once` : runs > 1 ? `Makes ${runs} runs` : '');
  }
  said(document.getElementById('makes'), all > 1 ? `Makes ${all} runs` : '');
}

/** Told to a screen reader only where it has changed. @param {Element | null} output @param {string} text */
function said(output, text) {
  if (output && output.textContent !== text) output.textContent = text;
}

/** Write a field into the command, in place of what stood there. @param {HTMLElement} box @param {HTMLElement} field */
function write(box, field) {
  const { command, all } = parts(box);
  if (command.value && split(command.value) === null) return; // a quote is open: what is typed stays
  const form = /** @type {HTMLElement} */ (field.closest('[data-arguments]'));
  if (!all.some((word) => SCRIPT.test(word))) all.unshift(form.dataset.arguments || '');
  const there = found(all, field);
  if (there) all.splice(there.at, there.length, ...words(field));
  else all.push(...words(field));
  command.value = all.map(quoted).join(' ');
}

document.addEventListener('input', (event) => {
  const target = /** @type {Element} */ (event.target);
  const box = /** @type {HTMLElement | null} */ (target.closest('[data-command]'));
  const field = /** @type {HTMLElement | null} */ (target.closest('[data-flags]'));
  if (box && field) write(box, field);
  else if (box) fill(box);
  makes();
});
const fillAll = () => {
  document.querySelectorAll('[data-command]').forEach((box) => fill(/** @type {HTMLElement} */ (box)));
  makes();
};
/** What somebody has filled in before this script had come, which on a slow network is a while. */
function takeUp() {
  for (const field of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-command] [data-flags]'))) {
    const box = /** @type {HTMLElement} */ (field.closest('[data-command]'));
    const { form } = parts(box);
    if (changed(field) && (!form || form.contains(field))) write(box, field);
  }
}

/** @param {HTMLElement} field */
function changed(field) {
  const input = /** @type {HTMLInputElement | HTMLSelectElement} */ (field.querySelector('input, select'));
  if (input instanceof HTMLSelectElement) return input.selectedIndex > 0;
  return input.type === 'checkbox' ? input.checked : input.value !== input.defaultValue;
}

document.addEventListener('associated', fillAll);
document.addEventListener('htmx:after:swap', fillAll);
takeUp();
fillAll();
