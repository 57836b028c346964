// @ts-check
/* The experiment's page: steps and time left of runs in progress, between two refetches of the tables. */

import * as live from './live.js';
import { showProgress } from './points.js';

live.on('points', (message) => {
  const run = String(message.topic).replace('run-', '');
  showProgress(document.querySelector(`tr[data-run="${run}"]`), message.progress || {});
});
