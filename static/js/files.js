// @ts-check
/* The tree of a run's files: its address says what is found and which folders are open, as a reload and a link would show it. */

document.addEventListener('htmx:after:swap', () => {
  const shown = document.querySelector('#files [data-address]');
  if (!shown) return;
  const address = new URL(location.href);
  address.search = shown.getAttribute('data-address') || '';
  const filter = /** @type {HTMLElement | null} */ (document.querySelector('.files-filter'));
  if (filter) filter.hidden = false; // the first file has come
  if (address.href !== location.href) history.replaceState(history.state, '', address);
});
