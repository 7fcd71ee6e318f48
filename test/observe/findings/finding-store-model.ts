import { BlockList, isIPv6 } from 'node:net';
import { familyOf, formatAddress } from '#addresses/ip-address.js';
import type { Finding, FindingDelta } from '#observe/findings/finding.js';
import type { FindingFilter } from '#observe/findings/finding-filter.js';
import { findingId } from '#observe/findings/store/finding-id.js';

/** A reference model of `FindingStore`: answers each query by a linear scan of all findings. */
export class Model {
  readonly #retentionMs: number;
  readonly #maxEntries: number;
  readonly #now: () => number;
  readonly #findings = new Map<string, Finding>();

  constructor(retentionMs: number, maxEntries: number, now: () => number) {
    this.#retentionMs = retentionMs;
    this.#maxEntries = maxEntries;
    this.#now = now;
  }

  get count(): number {
    return this.#findings.size;
  }

  merge(deltas: readonly FindingDelta[]): void {
    for (const delta of deltas) {
      const id = findingId(delta);
      const before = this.#findings.get(id);
      if (before === undefined) this.#findings.set(id, { ...delta, id });
      else {
        const newer = delta.lastMs >= before.lastMs ? delta : before;
        this.#findings.set(id, {
          ...before,
          generation: newer.generation,
          firstMs: Math.min(before.firstMs, delta.firstMs),
          lastMs: newer.lastMs,
          count: before.count + delta.count,
        });
      }
    }
    for (const [at, { id, lastMs }] of this.#sorted().entries()) {
      if (at >= this.#maxEntries || lastMs < this.#oldestMs()) this.#findings.delete(id);
    }
  }

  query(filter: FindingFilter): Finding[] {
    return this.#sorted().filter(
      (finding) =>
        finding.lastMs >= this.#oldestMs() &&
        (filter.sinceMs === null || finding.lastMs >= filter.sinceMs) &&
        (filter.untilMs === null || finding.lastMs <= filter.untilMs) &&
        among(filter.types, finding.type) &&
        among(filter.policyIds, finding.policyId) &&
        among(filter.sourceGroups, finding.sourceGroup) &&
        among(filter.rules, finding.rule) &&
        within(filter.sources, finding.source) &&
        within(filter.destinations, finding.destination),
    );
  }

  #oldestMs(): number {
    return this.#now() - this.#retentionMs;
  }

  #sorted(): Finding[] {
    return [...this.#findings.values()].sort((a, b) => b.lastMs - a.lastMs || (a.id < b.id ? -1 : 1));
  }
}

const among = (wanted: readonly unknown[], value: unknown): boolean => wanted.length === 0 || wanted.includes(value);

function within(wanted: FindingFilter['sources'], text: string | null): boolean {
  if (wanted.length === 0) return true;
  if (text === null) return false;
  const list = new BlockList();
  for (const { address, length } of wanted) list.addSubnet(formatAddress(address), length, familyOf(address));
  return list.check(text, isIPv6(text) ? 'ipv6' : 'ipv4');
}
