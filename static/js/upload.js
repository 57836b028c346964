// @ts-check
/* Sends files of any size in pieces and goes on after a lost connection. Without script the same form sends them in one go.

   A form with data-upload announces new files there, one with data-resume goes on with an upload that was begun before. Protocol:
   experiments/views/uploads.py. Each file is hashed on the way and compared at the end. */

const PIECE = 8 * 2 ** 20;
const TRIES = 12; // one after the other, with longer and longer waits: some two minutes
const LONGEST_WAIT_MS = 15000;

/** @typedef {{path: string, file: File}} Chosen */

/** What cannot be helped by trying again; its message is for people. */
class Refused extends Error {}

/** @param {number} bytes */
const readable = (bytes) => {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let step = 0;
  for (; bytes >= 1000 && step < 4; step += 1) bytes /= 1000;
  return `${step && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[step]}`;
};

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

/** A request that is tried again while the connection or the server is away. @param {string} address @param {RequestInit} options @param {(text: string) => void} say */
async function ask(address, options, say) {
  for (let tries = 1; ; tries += 1) {
    try {
      const response = await fetch(address, options);
      if (response.status < 500) return response;
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
  throw new Refused(errors || (response.redirected || response.status === 403 ? 'You are no longer logged in, or may not add data here.' : 'The studio refused it: reload the page and try again.'));
}

class Upload {
  /** @param {HTMLFormElement} form */
  constructor(form) {
    this.form = form;
    this.box = /** @type {HTMLElement} */ (form.querySelector('[data-progress]'));
    this.bar = /** @type {HTMLProgressElement} */ (this.box.querySelector('progress'));
    this.token = /** @type {HTMLInputElement} */ (form.querySelector('[name=csrfmiddlewaretoken]')).value;
    /** @type {Chosen[]} */
    this.chosen = [];
    this.address = form.dataset.resume || '';
    this.busy = false;
    this.sent = 0;
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
    for (const each of /** @type {NodeListOf<HTMLButtonElement>} */ (this.form.querySelectorAll('.buttons-end .button, .drop button'))) each.disabled = busy;
    /** @type {HTMLElement} */ (this.box.querySelector('[data-progress-again]')).hidden = busy || !this.address;
  }

  async start() {
    if (!this.chosen.length) {
      this.box.hidden = false;
      this.say('error', 'Choose a .zip file, or the files themselves.');
      return;
    }
    this.lock(true);
    this.say('error', '');
    try {
      const state = this.address ? await this.continued() : await this.announce();
      this.match(state);
      await this.send(state);
    } catch (error) {
      this.say('what', 'The upload has stopped.');
      this.say('error', error instanceof Refused ? error.message : `This browser cannot read the files: ${error}`);
      this.lock(false);
    }
  }

  headers() {
    return { 'X-CSRFToken': this.token, Accept: 'application/json' };
  }

  async announce() {
    this.say('what', 'Preparing…');
    const fields = new FormData(this.form);
    const files = this.chosen.map(({ path, file }) => ({ path, size: file.size }));
    const body = JSON.stringify({ name: fields.get('name'), description: fields.get('description'), files });
    const to = this.form.dataset.upload || '';
    const state = await answer(await ask(to, { method: 'POST', headers: this.headers(), body }, (text) => this.say('what', text)));
    this.address = state.upload;
    return state;
  }

  async continued() {
    return answer(await ask(this.address, { headers: this.headers() }, (text) => this.say('what', text)));
  }

  /** The files in the order in which they were announced. @param {any} state */
  match(state) {
    const byPath = new Map(this.chosen.map((each) => [each.path, each]));
    this.chosen = state.files.map((/** @type {{path: string, size: number}} */ wanted) => {
      const found = byPath.get(wanted.path);
      if (!found || found.file.size !== wanted.size) throw new Refused(`${wanted.path} is missing, or is not as long as before (${readable(wanted.size)}).`);
      return found;
    });
  }

  /** @param {{received: number[]}} state */
  async send(state) {
    const total = this.chosen.reduce((sum, { file }) => sum + file.size, 0);
    this.sent = 0;
    this.began = Date.now();
    const before = state.received.reduce((sum, each) => sum + each, 0);
    const hashes = [];
    for (const [place, { path, file }] of this.chosen.entries()) {
      this.say('what', this.chosen.length > 1 ? `Sending ${path} (${place + 1} of ${this.chosen.length})` : `Sending ${path}`);
      hashes.push(await this.one(place, file, state.received[place], (size) => this.show(before, total, size, place)));
    }
    this.say('what', 'Checking and unpacking…');
    this.bar.removeAttribute('value');
    const body = JSON.stringify({ sha256: hashes });
    const said = await answer(await ask(`${this.address}finish/`, { method: 'POST', headers: this.headers(), body }, (text) => this.say('what', text)));
    this.busy = false;
    location.assign(said.asset);
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

  /** @param {number} before @param {number} total @param {number} size @param {number} place */
  show(before, total, size, place) {
    const done = this.chosen.slice(0, place).reduce((sum, { file }) => sum + file.size, size);
    const seconds = (Date.now() - this.began) / 1000;
    const rate = seconds > 1 ? Math.max(0, done - before) / seconds : 0;
    this.bar.value = total ? done / total : 1;
    this.say('numbers', `${readable(done)} of ${readable(total)}${rate ? `, ${readable(rate)}/s, ${Math.ceil((total - done) / rate)} s left` : ''}`);
  }
}

/** @param {HTMLFormElement} form */
function start(form) {
  const upload = new Upload(form);
  const zone = /** @type {HTMLElement} */ (form.querySelector('[data-drop-files]'));
  const input = /** @type {HTMLInputElement} */ (zone.querySelector('input[type=file]'));
  const text = /** @type {HTMLElement} */ (zone.querySelector('[data-chosen-text]'));
  /** @param {Chosen[]} files */
  const choose = (files) => {
    upload.chosen = files;
    /** @type {HTMLElement} */ (zone.querySelector('[data-chosen]')).hidden = !files.length;
    zone.classList.toggle('has-file', files.length > 0);
    const size = readable(files.reduce((sum, { file }) => sum + file.size, 0));
    text.textContent = files.length === 1 ? `${files[0].path} (${size})` : `${files.length} files (${size})`;
    const name = /** @type {HTMLInputElement | null} */ (form.querySelector('input[name=name]'));
    if (name && !name.value && files.length) name.value = files[0].path.split('/')[0].replace(/\.zip$/i, '');
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
    choose([]);
    input.focus();
  });
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
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    upload.start();
  });
  form.querySelector('[data-progress-again]')?.addEventListener('click', () => upload.start());
  if (input.files?.length) taken(input);
}

for (const form of document.querySelectorAll('form[data-upload], form[data-resume]')) start(/** @type {HTMLFormElement} */ (form));
