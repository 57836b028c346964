// @ts-check
/* The drop zone of a zip with code, the scripts found in it, and the side panel of New experiment. The pages work without: the zone is a file
   field, the panel a plain list. A large zip is sent in pieces before its form, which then names it by number. */

import { quoted, split } from './grid.js';
import { PIECE, plain, readable, Sending } from './sending.js';
import * as zip from './zip.js';

/** @param {ParentNode} root */
function drops(root) {
  for (const zone of root.querySelectorAll('[data-drop]')) drop(/** @type {HTMLElement} */ (zone));
}

/** @param {HTMLElement} zone */
function drop(zone) {
  const input = /** @type {HTMLInputElement} */ (zone.querySelector('input[type=file]'));
  for (const type of ['dragenter', 'dragover']) {
    zone.addEventListener(type, (event) => {
      event.preventDefault();
      zone.classList.add('is-over');
    });
  }
  for (const type of ['dragleave', 'drop']) zone.addEventListener(type, () => zone.classList.remove('is-over'));
  zone.addEventListener('drop', (event) => {
    event.preventDefault();
    const files = event.dataTransfer?.files;
    if (!files?.length) return;
    input.files = files;
    chosen(zone, input);
  });
  zone.dataset.kept = zone.querySelector('[data-drop-name]')?.textContent || '';
  zone.querySelector('[data-drop-another]')?.addEventListener('click', () => input.click());
  zone.querySelector('[data-drop-clear]')?.addEventListener('click', () => {
    input.value = '';
    kept(zone).value = '';
    chosen(zone, input);
    input.focus();
  });
  input.addEventListener('change', () => chosen(zone, input));
  zone.parentElement?.querySelector('[data-progress-again]')?.addEventListener('click', () => zone.closest('form')?.requestSubmit());
  if (input.files?.length) chosen(zone, input);
}

/** The field with the number of a zip that has arrived. @param {ParentNode} zone */
const kept = (zone) => /** @type {HTMLInputElement} */ (zone.querySelector('input[name$=kept]'));

/** Send the zip of the form in pieces, if it is large; whether the form can be sent now. @param {HTMLFormElement} form */
async function inPieces(form) {
  const zone = /** @type {HTMLElement | null} */ (form.querySelector('[data-pieces]'));
  const input = /** @type {HTMLInputElement | null | undefined} */ (zone?.querySelector('input[type=file]'));
  const file = input?.files?.[0];
  if (!zone || !input || !file || file.size <= PIECE) return true;
  const sending = new Sending(form, zone.dataset.pieces || '', '');
  const said = await sending.run([{ path: file.name, file }], { code: true });
  if (!said) return false;
  sending.done();
  kept(zone).value = said.kept;
  input.value = '';
  return true;
}

/** A form on a page of its own; the panel's is sent by `send`. @param {HTMLFormElement} form */
function whole(form) {
  form.addEventListener('submit', async (event) => {
    const file = /** @type {HTMLInputElement | null} */ (form.querySelector('[data-pieces] input[type=file]'))?.files?.[0];
    if (!file || file.size <= PIECE) return;
    event.preventDefault();
    if (await inPieces(form)) form.submit();
  });
}

/** @param {HTMLElement} zone @param {HTMLInputElement} input */
async function chosen(zone, input) {
  const file = input.files?.[0];
  const box = /** @type {HTMLElement} */ (zone.querySelector('[data-drop-file]'));
  const there = Boolean(file || kept(zone).value);
  box.hidden = !there;
  zone.classList.toggle('has-file', there);
  const form = zone.closest('form');
  const name = /** @type {HTMLElement} */ (zone.querySelector('[data-drop-name]'));
  if (!file) {
    name.textContent = zone.dataset.kept || ''; // what has arrived before is still the form's
    return scripts(form, []);
  }
  propose(form, file.name);
  name.textContent = `${file.name} (${readable(file.size)})`;
  if (/\.(py|ipynb)$/i.test(file.name)) return scripts(form, [file.name]);
  if (/\.(tar|tgz|tar\.gz)$/i.test(file.name)) return scripts(form, []); // what is in it the server says
  const found = await zip.names(file).catch(() => null);
  if (found === null) name.textContent += ': this does not look like a .zip file';
  else scripts(form, found.filter((path) => /\.(py|ipynb)$/.test(path) && !/(^|\/)(__pycache__|\.ipynb_checkpoints)\//.test(path)));
}

/** The form's Name, while nobody has typed one, is that of the file. @param {HTMLFormElement | null} form @param {string} file */
function propose(form, file) {
  const name = /** @type {HTMLInputElement | null | undefined} */ (form?.querySelector('input[name=name], input[name$="-name"]'));
  if (!name || (name.value && name.value !== name.dataset.proposed)) return;
  name.value = plain(file);
  name.dataset.proposed = name.value;
  name.dispatchEvent(new Event('input', { bubbles: true }));
}

/** Offer the scripts of the zip for the command. @param {HTMLFormElement | null} form @param {string[]} paths */
function scripts(form, paths) {
  const box = /** @type {HTMLElement | null | undefined} */ (form?.querySelector('[data-scripts]'));
  const list = box?.querySelector('[data-scripts-list]');
  const command = /** @type {HTMLInputElement | null | undefined} */ (form?.querySelector('input[name$=command]'));
  if (form) form.dataset.scripts = JSON.stringify(paths.slice(0, 2000));
  if (!box || !list || !command) return;
  box.hidden = !paths.length;
  list.replaceChildren();
  for (const path of paths.slice(0, 12)) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'button button-small button-ghost mono';
    button.textContent = path;
    button.addEventListener('click', () => {
      command.value = withScript(command.value, path);
      command.dispatchEvent(new Event('input', { bubbles: true }));
      command.focus();
    });
    list.append(button);
  }
  const files = paths.filter((path) => path.endsWith('.py'));
  const likely = files.length ? files.find((path) => path === 'main.py' || files.length === 1) : paths.length === 1 && paths[0];
  if (likely && !command.value && command !== document.activeElement) command.value = quoted(likely); // nobody is about to type there
  if (command.value) command.dispatchEvent(new Event('input', { bubbles: true }));
}

/** The command with this script in place of its own; its arguments stay. @param {string} command @param {string} path */
function withScript(command, path) {
  const words = split(command) || command.trim().split(/\s+/); // where a quote is open
  const script = words.findIndex((word) => /\.(py|ipynb)$/.test(word));
  const rest = words.slice(script < 0 && !words[0]?.startsWith('-') ? 1 : script + 1);
  return [path, ...rest].map(quoted).join(' ');
}

/** The side panel: New and Existing fill the table of the experiment's form. */
function panel() {
  const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById('add-definition'));
  const table = document.getElementById('associated');
  if (!dialog || !table) return;
  enable(table);
  tabs(dialog);
  table.addEventListener('click', (event) => {
    const target = /** @type {Element} */ (event.target);
    const row = target.closest('tr');
    if (target.closest('[data-remove-version]')) row?.remove();
    else if (target.closest('[data-copy-version]')) row?.after(row.cloneNode(true));
    else return;
    count(table);
    document.dispatchEvent(new CustomEvent('associated'));
  });
  dialog.querySelector('[data-add-existing]')?.addEventListener('click', () => addExisting(dialog, table));
  const form = /** @type {HTMLFormElement} */ (dialog.querySelector('[data-panel-form]'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    send(form, dialog, table);
  });
  dialog.addEventListener('close', () => /** @type {HTMLElement | null} */ (document.querySelector('[data-dialog="add-definition"]'))?.focus());
}

/** Their rows come from the server when they are wanted: what their scripts understand is read from the code.
    @param {HTMLDialogElement} dialog @param {HTMLElement} table */
async function addExisting(dialog, table) {
  const boxes = /** @type {HTMLInputElement[]} */ ([...dialog.querySelectorAll('[data-existing]:checked')]);
  const button = /** @type {HTMLButtonElement} */ (dialog.querySelector('[data-add-existing]'));
  button.disabled = true;
  try {
    const rows = await Promise.all(boxes.map((box) => fetch(box.dataset.row || '', { headers: { 'HX-Request': 'true' } })));
    const away = rows.find((row) => row.redirected);
    if (away) return loggedOut(/** @type {HTMLElement} */ (dialog.querySelector('#panel-existing')), away.url);
    if (rows.some((row) => !row.ok)) return location.reload(); // gone: the page says so
    const texts = await Promise.all(rows.map((row) => row.text()));
    boxes.forEach((box, place) => {
      associate(table, texts[place]);
      box.checked = false;
    });
    dialog.close();
  } catch {
    say(/** @type {HTMLElement} */ (dialog.querySelector('#panel-existing')), 'The studio does not answer. Try again in a moment.');
  } finally {
    button.disabled = false;
  }
}

/** @param {HTMLFormElement} form @param {HTMLDialogElement} dialog @param {HTMLElement} table */
async function send(form, dialog, table) {
  const button = /** @type {HTMLButtonElement} */ (form.querySelector('.buttons .button:not(.button-secondary)'));
  if (!(await inPieces(form))) return;
  button.disabled = true;
  unsay(form); // what was said of the last try is not said of this one
  try {
    const response = await fetch(form.action, { method: 'POST', body: new FormData(form), headers: { 'HX-Request': 'true' } });
    const html = await response.text();
    if (response.status === 201) {
      associate(table, html);
      dialog.close();
      const fresh = await fetch(form.action, { headers: { 'HX-Request': 'true' } });
      fill(form, await fresh.text());
    } else if (response.status === 200 && !response.redirected) {
      fill(form, html);
      /** @type {HTMLElement | null} */ (form.querySelector('[aria-invalid=true]'))?.focus();
    } else if (response.redirected) loggedOut(form, response.url);
    else location.reload();
  } catch {
    say(form, 'The studio does not answer. Nothing was sent: try again in a moment.');
  } finally {
    button.disabled = false;
  }
}

/** @param {HTMLFormElement} form @param {string} html */
function fill(form, html) {
  const fields = /** @type {HTMLElement} */ (form.querySelector('[data-panel-fields]'));
  fields.innerHTML = html; // our own server's escaped HTML
  drops(fields);
}

/** @param {HTMLElement} form */
function unsay(form) {
  form.querySelector(':scope > .error[role=alert]')?.remove();
}

/** @param {HTMLElement} form @param {string} text */
function say(form, text) {
  unsay(form);
  const note = document.createElement('p');
  note.className = 'error';
  note.setAttribute('role', 'alert');
  note.textContent = text;
  form.prepend(note);
}

/** A reload would lose what is filled in. @param {HTMLElement} form @param {string} address where one logs in */
function loggedOut(form, address) {
  say(form, 'You are no longer logged in, and nothing was sent. Log in there, then come back and press the button again: ');
  const link = Object.assign(document.createElement('a'), { href: address, target: '_blank', textContent: 'log in, in a new tab' });
  form.querySelector(':scope > .error[role=alert]')?.append(link);
}

/** One more line; a version may be there several times. @param {HTMLElement} table @param {string} html */
function associate(table, html) {
  if (!table.children.length) document.getElementById('id_versions_error')?.remove(); // it says that there is none
  table.insertAdjacentHTML('beforeend', html);
  enable(table);
  count(table);
  document.dispatchEvent(new CustomEvent('associated'));
}

/** Without script these fields stay off and the plain list is used. @param {HTMLElement} table */
function enable(table) {
  for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (table.querySelectorAll('input[name]'))) input.disabled = false;
}

/** @param {HTMLElement} table */
function count(table) {
  const empty = document.getElementById('none-associated');
  if (empty) empty.hidden = table.children.length > 0;
}

/** @param {HTMLElement} root */
function tabs(root) {
  const all = /** @type {HTMLElement[]} */ ([...root.querySelectorAll('[role=tab]')]);
  /** @param {HTMLElement} chosen */
  const choose = (chosen) => {
    for (const tab of all) {
      tab.setAttribute('aria-selected', String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
      const shown = document.getElementById(tab.getAttribute('aria-controls') || '');
      if (shown) shown.hidden = tab !== chosen;
    }
    chosen.scrollIntoView({ block: 'nearest', inline: 'nearest' }); // on a small screen it may be cut off
  };
  for (const tab of all) {
    tab.addEventListener('click', () => choose(tab));
    tab.addEventListener('keydown', (event) => {
      if (event.key !== 'ArrowRight' && event.key !== 'ArrowLeft') return;
      const next = all[(all.indexOf(tab) + 1) % all.length];
      choose(next);
      next.focus();
    });
  }
}

/** The field of the global command is there when its box is ticked. */
function globalCommand() {
  const box = /** @type {HTMLInputElement | null} */ (document.querySelector('input[name=use_global]'));
  const field = /** @type {HTMLElement | null} */ (document.querySelector('[data-global-command]'));
  if (!box || !field) return;
  const show = () => {
    field.hidden = !box.checked;
    document.getElementById('associated')?.classList.toggle('is-overridden', box.checked);
  };
  box.addEventListener('change', show);
  show();
}

/** The folders that are offered are those of the data that is chosen. */
function folders() {
  const data = /** @type {HTMLSelectElement | null} */ (document.querySelector('select[name=data_asset]'));
  const folder = document.querySelector('input[name=source_folder]');
  if (!data || !folder) return;
  const offer = () => folder.setAttribute('list', data.value ? `folders-${data.value}` : 'folders');
  data.addEventListener('change', offer);
  offer();
}

drops(document);
for (const form of document.querySelectorAll('form:not([data-panel-form])')) if (form.querySelector('[data-pieces]')) whole(/** @type {HTMLFormElement} */ (form));
panel();
folders();
globalCommand();
