// @ts-check
/* The forms that add data: files or a folder chosen or dropped, sent in pieces. Without script the same form sends them in one go.

   A form with data-upload announces new files there, one with data-resume goes on with an upload that was begun before. */

import { plain, readable, Sending } from './sending.js';

/** @typedef {import('./sending.js').Chosen} Chosen */

/** The files of a drop, folders opened. @param {DataTransfer} transfer @returns {Promise<Chosen[]>} */
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ path: file.name, file }));
  /** @type {Chosen[]} */
  const found = [];
  /** @param {any} entry */
  const walk = async (entry) => {
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      found.push({ path: entry.fullPath.replace(/^\/+/, ''), file });
      return;
    }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const each of some) await walk(each);
    }
  };
  for (const entry of entries) await walk(entry);
  return found;
}

/** @param {HTMLFormElement} form */
function start(form) {
  const sending = new Sending(form, form.dataset.upload || '', form.dataset.resume || '');
  /** @type {Chosen[]} */
  let chosen = [];
  const zone = /** @type {HTMLElement} */ (form.querySelector('[data-drop-files]'));
  const input = /** @type {HTMLInputElement} */ (zone.querySelector('input[type=file]'));
  const text = /** @type {HTMLElement} */ (zone.querySelector('[data-chosen-text]'));
  const kept = /** @type {HTMLInputElement | null} */ (form.querySelector('input[name=kept]')); // the number of files that have arrived before
  const arrived = text.textContent || '';
  /** Says what was chosen, and calls it so where nobody has typed a name. @param {Chosen[]} files */
  const propose = (files) => {
    const size = readable(files.reduce((sum, { file }) => sum + file.size, 0));
    text.textContent = files.length === 1 ? `${files[0].path} (${size})` : `${files.length} files (${size})`;
    const name = /** @type {HTMLInputElement | null} */ (form.querySelector('input[name=name]'));
    if (!name || (name.value && name.value !== name.dataset.proposed)) return;
    name.value = plain(files[0].path.split('/')[0]);
    name.dataset.proposed = name.value;
  };
  /** @param {Chosen[]} files */
  const choose = (files) => {
    chosen = files;
    const there = Boolean(files.length || kept?.value);
    /** @type {HTMLElement} */ (zone.querySelector('[data-chosen]')).hidden = !there;
    zone.classList.toggle('has-file', there);
    if (files.length) propose(files);
    else if (kept?.value) text.textContent = arrived;
  };
  /** @param {HTMLInputElement} from */
  const taken = (from) => choose([...(from.files || [])].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
  input.addEventListener('change', () => taken(input));
  zone.querySelector('[data-choose-folder]')?.addEventListener('click', () => {
    const folder = document.createElement('input');
    folder.type = 'file';
    folder.webkitdirectory = true;
    folder.addEventListener('change', () => taken(folder));
    folder.click();
  });
  zone.querySelector('[data-chosen-clear]')?.addEventListener('click', () => {
    input.value = '';
    if (kept) kept.value = '';
    choose([]);
    input.focus();
  });
  zone.querySelector('[data-chosen-another]')?.addEventListener('click', () => input.click());
  for (const type of ['dragenter', 'dragover']) {
    zone.addEventListener(type, (event) => {
      event.preventDefault();
      zone.classList.add('is-over');
    });
  }
  for (const type of ['dragleave', 'drop']) zone.addEventListener(type, () => zone.classList.remove('is-over'));
  zone.addEventListener('drop', async (event) => {
    event.preventDefault();
    if (event.dataTransfer) choose(await dropped(event.dataTransfer));
  });
  const send = async () => {
    if (!chosen.length) return sending.complain('Choose a .zip file, or the files themselves.');
    const fields = new FormData(form);
    const next_of = form.dataset.nextOf ? Number(form.dataset.nextOf) : null;
    const texts = Object.fromEntries(['name', 'description', 'note'].map((name) => [name, fields.get(name) || '']));
    const said = await sending.run(chosen, { ...texts, next_of });
    if (said) location.assign(said.to);
  };
  form.addEventListener('submit', (event) => {
    if (!chosen.length && kept?.value) return; // they are there: the form alone is sent
    event.preventDefault();
    send();
  });
  form.querySelector('[data-script-sends]')?.removeAttribute('disabled'); // sooner it would have sent the form itself, to a page that takes none
  form.querySelector('[data-progress-again]')?.addEventListener('click', send);
  if (input.files?.length) taken(input);
}

for (const form of document.querySelectorAll('form[data-upload], form[data-resume]')) start(/** @type {HTMLFormElement} */ (form));
