import type { FindingDelta } from '#observe/findings/finding.js';
import { gap } from '#observe/findings/gap.js';
import { findingId, merged } from './finding-id.js';

const LIMIT = 10_000;

/**
 * Findings that wait for the next merge. Equal findings are merged. If `limit` findings wait, a further
 * finding is dropped and counted in a `gap` finding.
 */
export class PendingFindings {
  readonly #where: string;
  readonly #limit: number;
  #deltas = new Map<string, FindingDelta>();
  #lost: FindingDelta | undefined;

  /**
   * `where` is the component that a `gap` finding names as the place of the loss, for example `observer`.
   * `limit` is the maximum number of findings.
   */
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

  /** Returns all findings and the `gap`, if there is one, and removes them from this object. */
  drain(): FindingDelta[] {
    const drained = [...this.#deltas.values(), ...(this.#lost === undefined ? [] : [this.#lost])];
    this.#deltas = new Map();
    this.#lost = undefined;
    return drained;
  }
}
