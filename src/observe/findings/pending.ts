import type { FindingDelta } from './finding.js';
import { findingId, merged } from './finding-id.js';
import { gap } from './gap.js';

const LIMIT = 10_000;

/**
 * Findings that wait for the next merge. Equal ones are merged; above the limit they are counted in a `gap`.
 */
export class PendingFindings {
  readonly #where: string;
  readonly #limit: number;
  #deltas = new Map<string, FindingDelta>();
  #lost: FindingDelta | undefined;

  /** `where` is the place that a gap names, for example `api`. `limit` is a number of findings. */
  constructor(where: string, limit = LIMIT) {
    this.#where = where;
    this.#limit = limit;
  }

  add(delta: FindingDelta): void {
    const id = findingId(delta);
    const before = this.#deltas.get(id);
    if (before === undefined && this.#deltas.size >= this.#limit) {
      this.#lost = merged(this.#lost, gap(this.#where, delta.count, delta.firstMs, delta.lastMs));
    } else this.#deltas.set(id, merged(before, delta));
  }

  /** Returns all findings, with the gap, and forgets them. */
  take(): FindingDelta[] {
    const taken = [...this.#deltas.values(), ...(this.#lost === undefined ? [] : [this.#lost])];
    this.#deltas = new Map();
    this.#lost = undefined;
    return taken;
  }
}
