// @ts-check
/* The experiment's page: steps and time left of runs in progress between two refetches of the tables, and which runs are ticked. */

import * as live from './live.js';
import { showProgress } from './points.js';
import * as ticked from './ticked.js';

live.on('points', (message) => {
  const run = String(message.topic).replace('run-', '');
  showProgress(document.querySelector(`tr[data-run="${run}"]`), message.progress || {});
});
ticked.start();
