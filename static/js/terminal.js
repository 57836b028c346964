// @ts-check
/* What a log looks like on a terminal, of what comes while it is followed: a progress bar is one line there. The server does the same with what stands in it already
   (experiments/logs/terminal.py). */

const TOKENS = /\r?\n|\r|[\b]+|\x1b\[([0-9;?]*)([ -/]*[@-~])|\x1b.?|[^\r\n\b\x1b]+/g; // eslint-disable-line no-control-regex
const MOVED = /[\r\b\x1b]/; // eslint-disable-line no-control-regex
const LONGEST_OVERWRITTEN = 4096; // characters of a row in which the cursor goes back
const ROWS = 32; // that the cursor can go back to

/** The rows after `text` was written `up` rows above the last one of `rows`. @param {string[]} rows @param {number} up @param {string} text @returns {{rows: string[], up: number}} */
export function write(rows, up, text) {
  const shown = rows.length ? [...rows] : [''];
  let row = Math.max(0, shown.length - 1 - up);
  let anew = false;
  let back = 0;
  for (const [token, parameter, final] of text.matchAll(TOKENS)) {
    const count = Math.max(1, Math.min(1000, Number(parameter) || 1));
    if (token.endsWith('\n')) {
      row += 1;
      anew = true;
      if (row === shown.length) shown.push('');
    } else if (token === '\r') anew = true;
    else if (final === 'A') row = Math.max(0, row - count);
    else if (final === 'B') row = Math.min(shown.length - 1, row + count);
    else if (final === 'K') shown[row] = anew || parameter === '2' ? '' : shown[row];
    else if (token.startsWith('\b')) {
      back = token.length;
      continue;
    } else if (!token.startsWith('\x1b')) {
      shown[row] = overwritten(anew ? '' : shown[row], back, token);
      anew = false;
    }
    back = 0;
  }
  return { rows: shown.map((each, place) => (place < shown.length - 1 ? each.replace(/ +$/, '') : each)), up: shown.length - 1 - row };
}

/** The row after `token` was written `back` characters before its end. @param {string} row @param {number} back @param {string} token */
function overwritten(row, back, token) {
  const characters = back && row.length <= 2 * LONGEST_OVERWRITTEN ? Array.from(row) : [];
  if (!back || !characters.length || characters.length > LONGEST_OVERWRITTEN) return row + token;
  const at = Math.max(0, characters.length - back);
  return characters.slice(0, at).join('') + token + characters.slice(at + Array.from(token).length).join('');
}

/** One line, as it stood at last. @param {string} text */
export function line(text) {
  return MOVED.test(text) ? write([''], 0, text).rows.join(' ').trimEnd() : text;
}

/** Append to a box what is written at its end; where the cursor stands is kept in its data. @param {HTMLElement} box @param {string} text */
export function append(box, text) {
  const up = Number(box.dataset.up || 0);
  const returned = box.dataset.returned ? '\r' : '';
  if (!up && !returned && !MOVED.test(text)) return box.append(text);
  let end = '';
  while (box.lastChild && end.split('\n').length <= ROWS) {
    end = box.lastChild.textContent + end;
    box.lastChild.remove();
  }
  const rows = end.split('\n');
  const settled = rows.splice(0, Math.max(0, rows.length - ROWS));
  if (settled.length) box.append(`${settled.join('\n')}\n`);
  const after = write(rows, up, returned + text);
  box.append(after.rows.join('\n'));
  box.dataset.up = String(after.up);
  if (text.endsWith('\r')) box.dataset.returned = '1';
  else delete box.dataset.returned;
}
