// @ts-check
/* The typed form of a script's arguments and its command, kept in step: a field changes its words of the command, and a command that is typed
   fills the fields. The command is what is sent; without script it is typed. */

/** The words of a command as a shell would split them; null where a quote is open. @param {string} text */
function split(text) {
  const words = [];
  let word = '';
  let open = false;
  let quote = '';
  for (let i = 0; i < text.length; i += 1) {
    const c = text[i];
    if (quote) {
      if (c === quote) quote = '';
      else if (c === '\\' && quote === '"' && '"\\$`'.includes(text[i + 1] || ' ')) word += text[(i += 1)];
      else word += c;
    } else if (c === "'" || c === '"') {
      quote = c;
      open = true;
    } else if (c === '\\' && i + 1 < text.length) {
      word += text[(i += 1)];
      open = true;
    } else if (/\s/.test(c)) {
      if (open) words.push(word);
      word = '';
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (quote) return null;
  if (open) words.push(word);
  return words;
}

/** @param {string} word */
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'"'"'`)}'`);

/** Where an argument stands in the words: its first word, how many it takes, and its value. @param {string[]} words @param {HTMLElement} field */
function found(words, field) {
  const { kind, off } = field.dataset;
  const flags = (field.dataset.flags || '').split(' ');
  for (let at = words.length - 1; at > 0; at -= 1) {
    const [name, value] = words[at].startsWith('--') && words[at].includes('=') ? [words[at].slice(0, words[at].indexOf('=')), words[at].slice(words[at].indexOf('=') + 1)] : [words[at], null];
    if (kind === 'flag' && off && words[at] === off) return { at, length: 1, value: 'off' };
    if (!flags.includes(name)) continue;
    if (kind === 'flag') return { at, length: 1, value: field.dataset.default === 'on' && !off ? 'off' : 'on' };
    if (value !== null) return { at, length: 1, value };
    let length = 1;
    const several = kind === 'words' ? words.length : 2;
    while (length < several && at + length < words.length && (!/^-/.test(words[at + length]) || /^-[.\d]/.test(words[at + length]))) length += 1;
    return { at, length, value: words.slice(at + 1, at + length).map((word) => (kind === 'words' ? quoted(word) : word)).join(' ') };
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
  const value = input.value.trim();
  if (!value || value === field.dataset.default) return [];
  return field.dataset.kind === 'words' ? [flag, ...(split(value) || [value])] : [flag, value];
}

/** @param {HTMLElement} box */
function parts(box) {
  const command = /** @type {HTMLInputElement} */ (box.querySelector('input[name^=command]'));
  const all = split(command.value) || [];
  const script = all.findIndex((word) => word.endsWith('.py'));
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
    else input.value = there ? there.value : '';
  }
}

/** Write a field into the command, in place of what stood there. @param {HTMLElement} box @param {HTMLElement} field */
function write(box, field) {
  const { command, all } = parts(box);
  const form = /** @type {HTMLElement} */ (field.closest('[data-arguments]'));
  if (!all.some((word) => word.endsWith('.py'))) all.unshift(form.dataset.arguments || '');
  const there = found(all, field);
  if (there) all.splice(there.at, there.length, ...words(field));
  else all.push(...words(field));
  command.value = all.map(quoted).join(' ');
}

document.addEventListener('input', (event) => {
  const target = /** @type {Element} */ (event.target);
  const box = /** @type {HTMLElement | null} */ (target.closest('[data-command]'));
  if (!box) return;
  const field = /** @type {HTMLElement | null} */ (target.closest('[data-flags]'));
  if (field) write(box, field);
  else fill(box);
});
const fillAll = () => document.querySelectorAll('#associated [data-command]').forEach((box) => fill(/** @type {HTMLElement} */ (box)));
document.addEventListener('associated', fillAll);
fillAll();
