// @ts-check
/* A worker that hashes one file: each message is a piece of it and is answered when it is taken in; null asks for the hash. */

import { Sha256 } from './sha256.js';

let hash = new Sha256();

self.addEventListener('message', (event) => {
  if (event.data === null) {
    self.postMessage(hash.digest());
    hash = new Sha256();
    return;
  }
  hash.update(new Uint8Array(event.data));
  self.postMessage('');
});
