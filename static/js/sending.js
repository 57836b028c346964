// @ts-check
/* Sends files of any size in pieces and goes on after a lost connection: of data (upload.js) and of training definitions (forms.js).

   Protocol: experiments/views/uploads.py. Each file is hashed on the way and compared at the end. How far it is, and what went wrong, is
   shown in the form's data-progress box. */

import { renew } from './csrf.js';

export const PIECE = 8 * 2 ** 20;
const TRIES = 12; // one after the other, with longer and longer waits: some two minutes
const LONGEST_WAIT_MS = 15000;

/** @typedef {{path: string, file: File}} Chosen */

/** What cannot be helped by trying again; its message is for people. */
class Refused extends Error {
  /** @param {string} message @param {boolean} [gone] whether the upload was given up with it */
  constructor(message, gone = false) {
    super(message);
    this.gone = gone;
  }
}

/** @param {number} bytes */
export const readable = (bytes) => {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let step = 0;
  for (; bytes >= 1000 && step < 4; step += 1) bytes /= 1000;
  return `${step && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[step]}`;
};

/** What a file is called without how it is packed: mnist-v2 of mnist-v2.zip. @param {string} file */
export const plain = (file) => file.replace(/(\.zip|(\.modelDir)?\.tar(\.gz)?|\.tgz|\.py|\.ipynb)$/i, '').slice(0, 120);

/** A request that is tried again while the connection or the server is away. @param {string} address @param {RequestInit} options @param {(text: string) => void} say */
async function ask(address, options, say) {
  for (let tries = 1; ; tries += 1) {
    try {
      const response = await fetch(address, options);
      if (response.status < 500 || response.status === 507) return response; // 507: a full disk, with words
    } catch {
      // no connection
    }
    if (tries === TRIES) throw new Refused('The studio does not answer. What has arrived is kept: go on when it is back.');
    say('The connection is lost: trying again…');
    await new Promise((resolve) => setTimeout(resolve, Math.min(LONGEST_WAIT_MS, 500 * 2 ** tries)));
  }
}

/** @param {Response} response */
async function answer(response) {
  const said = await response.json().catch(() => ({}));
  if (response.ok) return said;
  const errors = Object.values(said.errors || {}).flat().join(' ');
  if (errors) throw new Refused(errors, said.gone === true);
  throw new Refused(response.redirected || response.status === 403 ? 'You are no longer logged in, or may not add data here.' : 'The studio refused it: reload the page and try again.');
}

/** @param {Chosen[]} before @param {Chosen[]} now */
const same = (before, now) =>
  before.length === now.length &&
  now.every(({ path, file }, place) => path === before[place].path && file.size === before[place].file.size && file.lastModified === before[place].file.lastModified);

export class Sending {
  /** @param {HTMLFormElement} form @param {string} to where new files are announced @param {string} address of an upload that was begun before */
  constructor(form, to, address) {
    this.form = form;
    this.to = to;
    this.box = /** @type {HTMLElement} */ (form.querySelector('[data-progress]'));
    this.bar = /** @type {HTMLProgressElement} */ (this.box.querySelector('progress'));
    renew();
    this.token = /** @type {HTMLInputElement} */ (form.querySelector('[name=csrfmiddlewaretoken]')).value;
    this.address = address;
    /** What was announced by this page. @type {Chosen[] | null} */
    this.announced = null;
    this.busy = false;
    /** Whether the only upload that this form can send was given up. */
    this.over = false;
    this.began = 0;
    this.hasher = new Worker(new URL('./hasher.js', import.meta.url), { type: 'module' });
    addEventListener('beforeunload', (event) => this.busy && event.preventDefault());
  }

  /** @param {string} name @param {string} text */
  say(name, text) {
    const place = /** @type {HTMLElement} */ (this.box.querySelector(`[data-progress-${name}]`));
    if (place.textContent !== text) place.textContent = text;
    if (name === 'error') place.hidden = !text;
  }

  /** @param {boolean} busy */
  lock(busy) {
    this.busy = busy;
    this.box.hidden = false;
    for (const each of /** @type {NodeListOf<HTMLButtonElement>} */ (this.form.querySelectorAll('.buttons-end .button, .drop button'))) each.disabled = busy || this.over;
    /** @type {HTMLElement} */ (this.box.querySelector('[data-progress-again]')).hidden = busy || !this.address;
  }

  /** @param {string} text */
  complain(text) {
    this.box.hidden = false;
    this.say('error', text);
  }

  /** The form can be used again, and no more is sent from here. */
  done() {
    this.lock(false);
    this.box.hidden = true;
    this.hasher.terminate();
  }

  /** What the server says when all has arrived; null where it has not, and the form says why.
      @param {Chosen[]} chosen @param {object} said beside the files when they are announced */
  async run(chosen, said) {
    this.lock(true);
    this.say('error', '');
    if (this.announced && !same(this.announced, chosen)) this.address = ''; // other files are another upload
    try {
      const state = this.address ? await this.continued() : await this.announce(chosen, said);
      return await this.send(this.match(chosen, state), state);
    } catch (error) {
      this.say('what', 'The upload has stopped.');
      if (error instanceof Refused && error.gone) this.forget();
      this.say('error', error instanceof Refused ? error.message : `This browser cannot read the files: ${error}`);
      this.lock(false);
      return null;
    }
  }

  /** The upload was given up: what is sent next is another one, where the form can begin one. */
  forget() {
    this.address = '';
    this.over = !this.to;
    if (this.over) for (const each of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-of-upload]'))) each.hidden = true;
  }

  headers() {
    return { 'X-CSRFToken': this.token, Accept: 'application/json' };
  }

  /** @param {Chosen[]} chosen @param {object} said */
  async announce(chosen, said) {
    this.say('what', 'Preparing…');
    const files = chosen.map(({ path, file }) => ({ path, size: file.size }));
    const body = JSON.stringify({ ...said, files });
    const state = await answer(await ask(this.to, { method: 'POST', headers: this.headers(), body }, (text) => this.say('what', text)));
    this.address = state.upload;
    this.announced = chosen;
    return state;
  }

  async continued() {
    return answer(await ask(this.address, { headers: this.headers() }, (text) => this.say('what', text)));
  }

  /** The files in the order in which they were announced. @param {Chosen[]} chosen @param {any} state @returns {Chosen[]} */
  match(chosen, state) {
    const byPath = new Map(chosen.map((each) => [each.path, each]));
    return state.files.map((/** @type {{path: string, size: number}} */ wanted) => {
      const found = byPath.get(wanted.path);
      if (!found || found.file.size !== wanted.size) throw new Refused(`${wanted.path} is missing, or is not as long as before (${readable(wanted.size)}).`);
      return found;
    });
  }

  /** @param {Chosen[]} files @param {{received: number[]}} state */
  async send(files, state) {
    const total = files.reduce((sum, { file }) => sum + file.size, 0);
    const before = state.received.reduce((sum, each) => sum + each, 0);
    this.began = Date.now();
    const hashes = [];
    let whole = 0;
    for (const [place, { path, file }] of files.entries()) {
      this.say('what', files.length > 1 ? `Sending ${path} (${place + 1} of ${files.length})` : `Sending ${path}`);
      hashes.push(await this.one(place, file, state.received[place], (size) => this.show(before, total, whole + size)));
      whole += file.size;
    }
    this.say('what', 'Checking and unpacking…');
    this.bar.removeAttribute('value');
    const body = JSON.stringify({ sha256: hashes });
    const said = await answer(await ask(`${this.address}finish/`, { method: 'POST', headers: this.headers(), body }, (text) => this.say('what', text)));
    this.busy = false;
    return said;
  }

  /** Send what is missing of a file; its hash. @param {number} place @param {File} file @param {number} received @param {(size: number) => void} show */
  async one(place, file, received, show) {
    for (let at = 0; at < file.size; at += PIECE) {
      const end = Math.min(at + PIECE, file.size);
      const hashed = this.hash(await file.slice(at, end).arrayBuffer());
      while (received < end) {
        const to = `${this.address}files/${place}?offset=${received}`;
        const body = file.slice(received, Math.min(received + PIECE, file.size));
        const response = await ask(to, { method: 'PUT', headers: this.headers(), body }, (text) => this.say('error', text));
        // 409: it stands elsewhere than thought (a piece arrived, its answer did not): go on from there.
        received = (response.status === 409 ? await response.json() : await answer(response)).size;
        this.say('error', '');
        show(received);
      }
      await hashed;
    }
    return this.hash(null);
  }

  /** @param {ArrayBuffer | null} piece @returns {Promise<string>} */
  hash(piece) {
    return new Promise((resolve) => {
      this.hasher.addEventListener('message', (event) => resolve(event.data), { once: true });
      this.hasher.postMessage(piece, piece ? [piece] : []);
    });
  }

  /** @param {number} before @param {number} total @param {number} done */
  show(before, total, done) {
    const seconds = (Date.now() - this.began) / 1000;
    const rate = seconds > 1 ? Math.max(0, done - before) / seconds : 0;
    this.bar.value = total ? done / total : 1;
    this.say('numbers', `${readable(done)} of ${readable(total)}${rate ? `, ${readable(rate)}/s, ${Math.ceil((total - done) / rate)} s left` : ''}`);
  }
}
