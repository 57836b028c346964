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
    /** @type {number[]} likewise, of those of which only the line is asked for */
    this.behind = [];
    /** @type {Promise<Map<number, Answer>> | null} */
    this.lines = null;
  }

  /** Rejects where the server is away, and for a run that may not be seen any more. @param {number} run @returns {Promise<Answer>} */
  async of(run) {
    this.runs.push(run);
    this.next ??= new Promise((resolve) => setTimeout(resolve)).then(() => this.fetch());
    return of(run, await this.next);
  }

  /** The journal line that the run's curves reach by now: an answer without curves. Rejects as `of` does. @param {number} run @returns {Promise<number>} */
  async line(run) {
    this.behind.push(run);
    this.lines ??= new Promise((resolve) => setTimeout(resolve)).then(() => {
      const asked = new URLSearchParams({ run: this.behind.join(','), metric: '' });
      [this.behind, this.lines] = [[], null];
      return this.ask(`${this.address}?${asked}`);
    });
    return of(run, await this.lines).seq;
  }

  async fetch() {
    const asked = new URLSearchParams([['run', this.runs.join(',')], ...this.wanted().map((name) => ['metric', name])]);
    const address = this.first || `${this.address}?${asked}`;
    [this.runs, this.next, this.first] = [[], null, ''];
    return this.ask(address);
  }

  /** @param {string} address */
  async ask(address) {
    const response = await fetch(address);
    const answer = await response.json();
    this.metrics = [...new Set([...this.metrics, ...answer.metrics])];
    return new Map(answer.runs.map((/** @type {Answer} */ each) => [each.run, each]));
  }
}

/** @param {number} run @param {Map<number, Answer>} answers */
function of(run, answers) {
  const found = answers.get(run);
  if (!found) throw new Error(`nothing of run ${run}`);
  return found;
}
