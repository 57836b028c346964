// @ts-check
/* Notifications that have been read. */

/** A notification whose link is followed, in this tab or another, is read. */
export function start() {
  const read = (/** @type {Event} */ event) => {
    const link = /** @type {Element} */ (event.target).closest?.('a[data-read]');
    const token = /** @type {HTMLInputElement | null} */ (document.querySelector('[name=csrfmiddlewaretoken]'))?.value || '';
    if (link) fetch(link.getAttribute('data-read') || '', { method: 'POST', headers: { 'X-CSRFToken': token }, keepalive: true }).catch(() => {}); // it stays unread
  };
  document.addEventListener('click', read);
  document.addEventListener('auxclick', read);
}
