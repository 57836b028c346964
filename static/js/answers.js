// @ts-check
/* The curves of several runs in one answer of the server: who asks for a run's at the same moment shares it. */

/** @typedef {{steps: number[], times: number[], values: (number | null)[]}} Curve */
/** `start`: when it began to train, Unix seconds. @typedef {{run: number, seq: number, start: number | null, metrics: string[], shape: import('./curves.js').Shape, curves: (Curve & {name: string})[]}} Answer */

export class Answers {
  /** @param {string} address @param {() => string[]} wanted the metrics whose curves are drawn; none: the server takes the first
      @param {string} [first] what is asked first, whose answer is on its way already */
  constructor(address, wanted, first = '') {
    this.first = first;
    this.address = address;
    this.wanted = wanted;
    /** @type {string[]} of all the runs that were asked for, in the order in which they are offered */
    this.metrics = [];
    /** @type {number[]} */
    this.runs = [];
    /** @type {Promise<Map<number, Answer>> | null} */
    this.next = null;
  }

  /** Rejects where the server is away, and for a run that may not be seen any more. @param {number} run @returns {Promise<Answer>} */
  async of(run) {
    this.runs.push(run);
    this.next ??= new Promise((resolve) => setTimeout(resolve)).then(() => this.fetch());
    const found = (await this.next).get(run);
    if (!found) throw new Error(`nothing of run ${run}`);
    return found;
  }

  async fetch() {
    const asked = new URLSearchParams([['run', this.runs.join(',')], ...this.wanted().map((name) => ['metric', name])]);
    const address = this.first || `${this.address}?${asked}`;
    [this.runs, this.next, this.first] = [[], null, ''];
    const response = await fetch(address);
    const answer = await response.json();
    this.metrics = [...new Set([...this.metrics, ...answer.metrics])];
    return new Map(answer.runs.map((/** @type {Answer} */ each) => [each.run, each]));
  }
}
