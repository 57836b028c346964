// @ts-check
/* A log that is followed: what is new is asked for from the byte where the last answer ended. Filtering hides lines, it loses none. */

const EVERY_MS = 1000;
const AFTER_END_MS = 5000;
const MOST_CHARACTERS = 2_000_000;

const log = document.getElementById('log');
const state = document.getElementById('log-state');
const filter = /** @type {HTMLInputElement | null} */ (document.getElementById('log-filter'));
const follow = /** @type {HTMLInputElement | null} */ (document.getElementById('log-follow'));

if (log && filter && follow) {
  let text = log.textContent || '';
  let end = Number(log.dataset.end);

  const show = () => {
    const wanted = filter.value.toLowerCase();
    const lines = wanted ? text.split('\n').filter((line) => line.toLowerCase().includes(wanted)) : null;
    log.textContent = lines ? lines.join('\n') : text;
    if (state) state.textContent = lines ? `${lines.length} matching line${lines.length === 1 ? '' : 's'} of those loaded` : '';
    if (follow.checked) log.scrollTop = log.scrollHeight;
  };

  const ask = async () => {
    if (document.hidden) return void setTimeout(ask, EVERY_MS);
    let more = false;
    try {
      const address = `${log.dataset.log}?name=${encodeURIComponent(log.dataset.name || '')}&offset=${end}`;
      const response = await fetch(address, { headers: { Accept: 'application/json' } });
      if (response.status === 404 || response.redirected) return location.reload();
      const answer = await response.json();
      if (answer.end > end && answer.text) {
        text = (text + answer.text).slice(-MOST_CHARACTERS);
        end = answer.end;
        more = answer.end < answer.size;
        show();
      }
    } catch {
      if (state) state.textContent = 'The studio does not answer; trying again.';
    }
    setTimeout(ask, more ? 0 : log.dataset.liveRun === 'yes' ? EVERY_MS : AFTER_END_MS);
  };

  filter.addEventListener('input', show);
  follow.addEventListener('change', show);
  log.addEventListener('scroll', () => {
    // Scrolling up stops following, reaching the end goes on.
    follow.checked = log.scrollTop + log.clientHeight >= log.scrollHeight - 24;
  });
  show();
  setTimeout(ask, EVERY_MS);
}
