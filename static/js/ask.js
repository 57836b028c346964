// @ts-check
/* A question before something that cannot be taken back, in a dialog of the studio's own. */

/** Whether the person says yes. Escape and Cancel are no; the focus goes back to where it was. `verb`: what yes does, on its button, which
    is red where it is `grave`. @param {string} question @param {string} verb @param {boolean} grave @returns {Promise<boolean>} */
export function ask(question, verb, grave) {
  const dialog = document.createElement('dialog');
  dialog.className = 'ask';
  dialog.setAttribute('aria-labelledby', 'ask-question');
  const text = Object.assign(document.createElement('p'), { id: 'ask-question', className: 'dialog-body wrap', textContent: question });
  const foot = Object.assign(document.createElement('form'), { method: 'dialog', className: 'dialog-foot' });
  const no = Object.assign(document.createElement('button'), { className: 'button button-secondary', value: '', textContent: 'Cancel' });
  const yes = Object.assign(document.createElement('button'), { className: `button ${grave ? 'button-danger' : 'button-primary'}`, value: 'yes', textContent: verb });
  foot.append(no, yes);
  dialog.append(text, foot);
  document.body.append(dialog);
  const before = document.activeElement;
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      resolve(dialog.returnValue === 'yes');
    });
  });
}
