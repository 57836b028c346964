// @ts-check
/* What the reader chose (axis, zoom, window of time, filter) lives in the page's address: a reload, the way back and a link sent to somebody
   show the same. Replaces the address, makes no history: the way back leads to the page before. */

/** @param {string} name @param {string} [fallback] */
export const kept = (name, fallback = '') => new URLSearchParams(location.search).get(name) ?? fallback;

/** Empty values are left out of the address. @param {Record<string, string | number | null | undefined>} values */
export function keep(values) {
  const address = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === '') address.searchParams.delete(name);
    else address.searchParams.set(name, String(value));
  }
  if (address.href !== location.href) history.replaceState(history.state, '', address);
}

/** Of what may have several values. @param {string} name */
export const keptAll = (name) => new URLSearchParams(location.search).getAll(name);

/** @param {string} name @param {string[]} values */
export function keepAll(name, values) {
  const address = new URL(location.href);
  address.searchParams.delete(name);
  for (const value of values) address.searchParams.append(name, value);
  history.replaceState(history.state, '', address);
}
