import { Cells } from './cells.js';
import type { HostnamePattern, Prefix } from './model.js';
import { firstAddress, lastAddress } from './prefix.js';
import type { Name, Program } from './program.js';

export type NameLeaf = { readonly name: number; readonly leaf: number };

/** The names of a program, and the leaves that they bring to each segment. */
export class NameTable {
  private readonly names: Name[] = [];
  private readonly numbers = new Map<string, number>();
  private readonly owners = new Cells(16);
  private readonly members = new Cells(16);
  private readonly leaves = new Cells(16);

  /** The number of a pattern together with static destinations. */
  number(pattern: HostnamePattern, destinations: readonly Prefix[]): number {
    const within = outermost(destinations);
    const key = JSON.stringify([pattern.kind, pattern.text, within.map(({ address, length }) => [address, length])]);
    const known = this.numbers.get(key);
    if (known !== undefined) return known;
    const added = this.names.push({ pattern, destinations: within }) - 1;
    this.numbers.set(key, added);
    return added;
  }

  /** The names of a segment ascend. */
  add(segment: number, leaves: readonly NameLeaf[]): void {
    for (const { name, leaf } of leaves) {
      this.owners.push(segment);
      this.members.push(name);
      this.leaves.push(leaf);
    }
  }

  tables(): Pick<Program, 'names' | 'nameLeaves'> {
    return {
      names: this.names,
      nameLeaves: {
        segments: this.owners.trimmed(),
        names: this.members.trimmed(),
        leaves: this.leaves.trimmed(),
      },
    };
  }
}

/** The prefixes that are not inside another, ascending; none where all addresses are covered. */
function outermost(prefixes: readonly Prefix[]): readonly Prefix[] {
  const kept: Prefix[] = [];
  const sorted = prefixes
    .map((prefix) => ({ address: firstAddress(prefix), length: prefix.length }))
    .sort((left, right) => left.address - right.address || left.length - right.length);
  for (const prefix of sorted) {
    const last = kept.at(-1);
    if (last === undefined || prefix.address > lastAddress(last)) kept.push(prefix);
  }
  return kept.every(({ length }) => length > 0) ? kept : [];
}
