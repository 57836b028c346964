// @ts-check
/* Reads the names in a .zip from its central directory, in the browser: enough to say what was chosen and which scripts it holds. The server
   checks the file itself; nothing here is relied on. */

const TAIL = 66_000; // the end record and the longest comment

/** The paths in the zip, its one top folder taken off; null when it does not look like a zip. @param {File} file */
export async function names(file) {
  const tail = new DataView(await file.slice(Math.max(0, file.size - TAIL)).arrayBuffer());
  let at = tail.byteLength - 22;
  while (at >= 0 && tail.getUint32(at, true) !== 0x06054b50) at -= 1;
  if (at < 0) return null;
  const size = tail.getUint32(at + 12, true);
  const offset = tail.getUint32(at + 16, true);
  if (offset === 0xffffffff || size > 8_000_000) return [];
  const folder = new DataView(await file.slice(offset, offset + size).arrayBuffer());
  const found = [];
  const decoder = new TextDecoder();
  for (let p = 0; p + 46 <= folder.byteLength && folder.getUint32(p, true) === 0x02014b50; ) {
    const length = folder.getUint16(p + 28, true);
    const name = decoder.decode(new Uint8Array(folder.buffer, p + 46, Math.min(length, folder.byteLength - p - 46)));
    found.push(name.includes('/') ? name : name.replaceAll('\\', '/')); // as Windows writes it
    p += 46 + length + folder.getUint16(p + 30, true) + folder.getUint16(p + 32, true);
  }
  return withoutRoot(found.filter((name) => !name.endsWith('/')));
}

/** @param {string[]} paths */
function withoutRoot(paths) {
  const roots = new Set(paths.map((path) => path.split('/')[0]));
  const one = roots.size === 1 && paths.every((path) => path.includes('/'));
  return one ? paths.map((path) => path.slice(path.indexOf('/') + 1)) : paths;
}
