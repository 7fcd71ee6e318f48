import type { HostnamePattern } from '#contracts/policy-model.js';
import type { Program } from '#contracts/program.js';
import { GrowingWords } from '#policy/model/growing-words.js';

export type NameLeaf = { readonly name: number; readonly leaf: number };

/** The hostname patterns of a program, and the port maps that each pattern adds to rule blocks. */
export class NameTable {
  private readonly names: HostnamePattern[] = [];
  private readonly numbers = new Map<string, number>();
  private readonly owners = new GrowingWords(16);
  private readonly members = new GrowingWords(16);
  private readonly leaves = new GrowingWords(16);

  /** The hostname patterns. The index of a pattern is its number. */
  get patterns(): readonly HostnamePattern[] {
    return this.names;
  }

  /** Returns the number of a pattern. Adds the pattern if the table does not contain it. */
  number(pattern: HostnamePattern): number {
    const known = this.numbers.get(pattern.text);
    if (known !== undefined) return known;
    const added = this.names.push(pattern) - 1;
    this.numbers.set(pattern.text, added);
    return added;
  }

  /**
   * Adds the port maps of hostname patterns to a rule block (`segment`). `leaves` must be sorted by pattern
   * number.
   */
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
