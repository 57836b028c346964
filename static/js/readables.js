// @ts-check
/* Fields that a browser cannot read. */

/** What is no number or no date ("1e", "31." of a date) a browser sends as if its field were empty: it says so instead, also of the forms
    that leave all else to the studio. */
export function start() {
  document.addEventListener(
    'submit',
    (event) => {
      const fields = /** @type {HTMLFormElement} */ (event.target).querySelectorAll('input');
      const wrong = [...fields].find((field) => field.validity.badInput && field.checkVisibility());
      if (!wrong) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      wrong.reportValidity();
    },
    true,
  );
}
