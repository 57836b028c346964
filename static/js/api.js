// @ts-check
/* The page that describes the API: Swagger UI, which asks as who is logged in here, or by the token that it is given. */

const theme = document.documentElement.dataset.theme;
const dark = theme === 'dark' || (theme !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches);
document.documentElement.classList.toggle('dark-mode', dark);
const box = /** @type {HTMLElement} */ (document.getElementById('api'));

/** @type {any} */ (window).SwaggerUIBundle({
  url: box.dataset.describedAt,
  domNode: box,
  layout: 'BaseLayout',
  deepLinking: true,
  docExpansion: 'none',
  requestInterceptor: (/** @type {any} */ request) => {
    request.headers['X-CSRFToken'] = box.dataset.token;
    return request;
  },
});
