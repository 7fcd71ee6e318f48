import type { FindingDelta } from './finding.js';
import { findingId, merged } from './finding-id.js';
import { gap } from './gap.js';

const LIMIT = 10_000;

/** Findings on their way to the ledger: equal ones are one. Those that do not fit are counted in a `gap`. */
export class PendingFindings {
  readonly #where: string;
  readonly #limit: number;
  #deltas = new Map<string, FindingDelta>();
  #lost: FindingDelta | undefined;

  /** `where` is what a gap says of the place, as in `api`; `limit` counts findings. */
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

  /** All of them, the gap too; afterwards there are none. */
  take(): FindingDelta[] {
    const taken = [...this.#deltas.values(), ...(this.#lost === undefined ? [] : [this.#lost])];
    this.#deltas = new Map();
    this.#lost = undefined;
    return taken;
  }
}
