// @ts-check
/* A login in another tab changes the token that forms carry: what an older tab sends then has the token of now, from the browser's cookie. */

/** Into every form of the page, and what htmx says beside them. */
export function renew() {
  const token = document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1];
  if (!token) return; // the server says so
  for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll('[name=csrfmiddlewaretoken]'))) field.value = token;
  document.body.setAttribute('hx-headers:inherited', JSON.stringify({ 'X-CSRFToken': token }));
}

export function start() {
  document.addEventListener('submit', renew, true);
  addEventListener('focus', renew); // for what is sent without a form
}
