// @ts-check
/* Value lists in commands, as experiments/services/grid.py reads them: `--lr {0.1,0.3}` is two runs. In a field of the arguments the same list
   is "0.1, 0.3". Words of a command are texts in which a list stands, as it was typed, between two marks. */

export const MOST = 100;
const OPEN = '\ue000';
const CLOSE = '\ue001';

/** The place after what stands at `at`: a character, one behind a backslash, or all that is in quotes. @param {string} text @param {number} at */
function step(text, at) {
  if (text[at] === '\\') return Math.min(at + 2, text.length);
  if (!`'"`.includes(text[at])) return at + 1;
  const quote = text[at];
  at += 1;
  while (at < text.length && text[at] !== quote) at += quote === '"' && text[at] === '\\' ? 2 : 1;
  return Math.min(at + 1, text.length);
}

/** The list that opens at `begin`, if it is one. @param {string} text @param {number} begin */
function listAt(text, begin) {
  const values = [];
  let since = begin + 1;
  let at = since;
  while (at < text.length && text[at] !== '{') {
    if (',}'.includes(text[at])) {
      values.push(text.slice(since, at).trim());
      since = at + 1;
      if (text[at] === '}') return values.length > 1 ? { end: since, values } : null;
    }
    at = step(text, at);
  }
  return null;
}

/** How many runs a command makes. @param {string} command */
export function count(command) {
  let runs = 1;
  for (let at = 0; at < command.length; ) {
    const list = command[at] === '{' ? listAt(command, at) : null;
    if (list) runs *= list.values.length;
    at = list ? list.end : step(command, at);
  }
  return runs;
}

/** The words of a command as a shell would split them; null where a quote is open. @param {string} text */
export function split(text) {
  const words = [];
  let word = '';
  let open = false;
  let quote = '';
  for (let i = 0; i < text.length; i += 1) {
    const c = text[i];
    const list = c === '{' && !quote ? listAt(text, i) : null;
    if (list) {
      word += OPEN + text.slice(i, list.end) + CLOSE;
      open = true;
      i = list.end - 1;
    } else if (quote) {
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
const plain = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'"'"'`)}'`);

/** A word as it is written into a command. @param {string} word */
export const quoted = (word) =>
  word.includes(OPEN) ? word.split(/(\ue000.*?\ue001)/s).map((part) => (part[0] === OPEN ? part.slice(1, -1) : part && plain(part))).join('') : plain(word);

/** One value of a field, as it is typed there: in quotes where it would be taken for several. @param {string} value */
function item(value) {
  if (value && !/[,"']|^\s|\s$/.test(value)) return value;
  return value.includes('"') && !value.includes("'") ? `'${value}'` : `"${value}"`;
}

/** A word of a command as its field shows it. @param {string} word */
export function toField(word) {
  if (word[0] !== OPEN || word[word.length - 1] !== CLOSE || word.indexOf(CLOSE) < word.length - 1) return /,|^["']/.test(word) ? item(word) : word;
  const list = listAt(word.slice(1, -1), 0);
  return (list?.values || []).map((value) => item((split(value) || [value]).join(' '))).join(', ');
}

/** What a field says as a word of a command: one value, or a list of them. @param {string} text */
export function fromField(text) {
  const items = [];
  let quote = '';
  let since = 0;
  for (let i = 0; i <= text.length; i += 1) {
    if (i === text.length || (text[i] === ',' && !quote)) {
      const typed = text.slice(since, i).trim();
      const whole = typed.length > 1 && `'"`.includes(typed[0]) && typed.endsWith(typed[0]);
      if (typed) items.push(whole ? typed.slice(1, -1) : typed);
      since = i + 1;
    } else if (quote ? text[i] === quote : `'"`.includes(text[i]) && !text.slice(since, i).trim()) quote = quote ? '' : text[i];
  }
  if (items.length < 2) return items[0] || '';
  return `${OPEN}{${items.map((value) => (/^[\w@%+=:./-]+$/.test(value) ? value : `'${value.replace(/'/g, `'"'"'`)}'`)).join(',')}}${CLOSE}`;
}
