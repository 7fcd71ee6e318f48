import type { Group } from '#contracts/policy-model.js';
import { mask } from './ipv4.js';
import type { Scope } from './source-scope.js';

const KEPT_SOURCES = 4096;

/** A group that applies to a source: its index in the policy, and which of its rules apply. */
export type ScopedGroup = { readonly group: number; readonly scope: Scope };

/**
 * Finds the groups that apply to a source. The reference evaluator uses this index and the compiler does not.
 * So a proof, which compares both, also finds errors in the compiler's source tables.
 */
export class SourceIndex {
  readonly #bySource = new Map<number, number[]>();
  readonly #lengths: readonly number[];
  readonly #dynamic: readonly number[];
  readonly #kept = new Map<number, readonly ScopedGroup[]>();

  constructor(groups: readonly Group[]) {
    const lengths = new Set<number>();
    for (const [index, { sources }] of groups.entries()) {
      for (const { address, length } of sources) {
        lengths.add(length);
        const key = sourceKey(address, length);
        const known = this.#bySource.get(key);
        if (known === undefined) this.#bySource.set(key, [index]);
        else if (known.at(-1) !== index) known.push(index);
      }
    }
    this.#lengths = [...lengths];
    this.#dynamic = [...groups.keys()].filter((index) => groups[index]?.dynamic === true);
  }

  /** Returns the groups that apply to a source, in the order of evaluation. */
  groupsOf(source: number): readonly ScopedGroup[] {
    const kept = this.#kept.get(source | 0);
    if (kept !== undefined) return kept;
    const found = new Set<number>();
    for (const length of this.#lengths) {
      for (const group of this.#bySource.get(sourceKey(mask(source, length), length)) ?? []) found.add(group);
    }
    const groups = [...new Set([...found, ...this.#dynamic])]
      .sort((left, right) => left - right)
      .map((group): ScopedGroup => ({ group, scope: found.has(group) ? 'all' : 'denies' }));
    if (this.#kept.size >= KEPT_SOURCES) this.#kept.clear();
    this.#kept.set(source | 0, groups);
    return groups;
  }
}

function sourceKey(address: number, length: number): number {
  return address * 64 + length;
}
