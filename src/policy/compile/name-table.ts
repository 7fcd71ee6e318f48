import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';
import type { FamilyProgram } from '#contracts/policy/program.js';

export type NamePortMap = { readonly name: number; readonly portMap: number };

/**
 * The hostname patterns of a compiled policy, and the port maps that each pattern adds to rule blocks (parts
 * of a rule list).
 */
export class NameTable {
  private readonly names: HostnamePattern[] = [];
  private readonly numbers = new Map<string, number>();
  private readonly owners = new GrowingUint32Array(16);
  private readonly members = new GrowingUint32Array(16);
  private readonly portMaps = new GrowingUint32Array(16);

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
   * Adds the port maps of hostname patterns to a rule block (part of a rule list). `portMaps` must be sorted
   * by pattern number.
   */
  add(ruleBlock: number, portMaps: readonly NamePortMap[]): void {
    for (const { name, portMap } of portMaps) {
      this.owners.push(ruleBlock);
      this.members.push(name);
      this.portMaps.push(portMap);
    }
  }

  tables(): Pick<FamilyProgram, 'namePortMaps'> {
    return {
      namePortMaps: {
        ruleBlocks: this.owners.trimmed(),
        names: this.members.trimmed(),
        portMaps: this.portMaps.trimmed(),
      },
    };
  }
}
