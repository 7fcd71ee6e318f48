import type { Placed, PlacedRuleNames } from '#contracts/event-source.js';
import type { RuleNames } from '#contracts/rule-names.js';

/** The number of former programs whose rule names are kept: flows outlive the policy that decided them. */
const FORMER = 16;
const FORMER_RANKS = 1 << 20;

/** The rule names of the program in force and of former programs, for as long as flows may refer to them. */
export class RuleNameHistory {
  #staged: Placed | undefined;
  /** Newest first: the first is in force. */
  #flipped: PlacedRuleNames[] = [];
  #finder: Finder | undefined;

  get inForce(): PlacedRuleNames | undefined {
    return this.#flipped[0];
  }

  /** Oldest first. */
  get placed(): readonly PlacedRuleNames[] {
    return this.#flipped.toReversed();
  }

  get staged(): Placed | undefined {
    return this.#staged;
  }

  stage(placed: Placed): void {
    this.#staged = placed;
  }

  unstage(): void {
    this.#staged = undefined;
  }

  flip(epoch: number): void {
    if (this.#staged === undefined) throw new Error('no rule names are staged');
    this.place({ ...this.#staged, epoch });
    this.#staged = undefined;
  }

  /** Adds rule names that are in force from their epoch on. */
  place(placed: PlacedRuleNames): void {
    const kept: PlacedRuleNames[] = [placed];
    let ranks = 0;
    for (const former of this.#flipped) {
      ranks += former.entries.length;
      if (kept.length <= FORMER && ranks <= FORMER_RANKS) kept.push(former);
    }
    this.#flipped = kept;
    this.#finder = undefined;
  }

  /**
   * The rule names of the program that was staged or put in force with this generation; undefined if it is
   * not known.
   */
  ofGeneration(generation: number): RuleNames | undefined {
    if (this.#staged?.generation === generation) return this.#staged.ruleNames;
    return this.#flipped.find((placed) => placed.generation === generation)?.ruleNames;
  }

  /** Undefined for an epoch that another process put in force. */
  generationOf(epoch: number): number | undefined {
    return this.#flipped.find((placed) => placed.epoch === epoch)?.generation;
  }

  /** Resolves an entry of `hits` to its rule. Valid until the next flip. */
  finder(): Finder {
    this.#finder ??= new Finder(this.#flipped);
    return this.#finder;
  }
}

/** Maps an entry of `hits` to the rule that counts there, by the newest rule names that contain the entry. */
export class Finder {
  readonly #ruleNameHistory: readonly Placed[];
  readonly #ruleNamesOf: Uint8Array;
  readonly #rankOf: Uint32Array;

  constructor(ruleNameHistory: readonly Placed[]) {
    this.#ruleNameHistory = ruleNameHistory;
    let highest = 0;
    for (const { entries } of ruleNameHistory) for (const entry of entries) if (entry > highest) highest = entry;
    this.#ruleNamesOf = new Uint8Array(highest + 1);
    this.#rankOf = new Uint32Array(highest + 1);
    for (let number = ruleNameHistory.length; number > 0; number--) {
      const { entries } = ruleNameHistory[number - 1] as Placed;
      for (let rank = 0; rank < entries.length; rank++) {
        const entry = entries[rank] as number;
        if (entry === 0) continue;
        this.#ruleNamesOf[entry] = number;
        this.#rankOf[entry] = rank;
      }
    }
  }

  /** `check` is the low word of the identity. Undefined if no known rule has this identity at this entry. */
  find(entry: number, check: number): { readonly ruleNames: RuleNames; readonly rank: number } | undefined {
    const placed = this.#ruleNameHistory[(this.#ruleNamesOf[entry] ?? 0) - 1];
    const rank = this.#rankOf[entry] ?? 0;
    return placed?.ruleNames.identities[2 * rank] === check ? { ruleNames: placed.ruleNames, rank } : undefined;
  }

  /** For each entry the low word of the identity of its rule if `wanted` accepts that rule; else 0. */
  checks(wanted: (ruleNames: RuleNames) => (rank: number) => boolean): Uint32Array {
    const found = new Uint32Array(this.#rankOf.length);
    const tests = this.#ruleNameHistory.map(({ ruleNames }) => wanted(ruleNames));
    for (let entry = 1; entry < found.length; entry++) {
      const number = (this.#ruleNamesOf[entry] ?? 0) - 1;
      if (number < 0) continue;
      const rank = this.#rankOf[entry] as number;
      if (tests[number]?.(rank) === true)
        found[entry] = this.#ruleNameHistory[number]?.ruleNames.identities[2 * rank] ?? 0;
    }
    return found;
  }
}
