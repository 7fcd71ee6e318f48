import { itemAt, u8At, u32At } from '#arrays/read.js';

import type { FlippedRuleNames, StagedRuleNames } from '#contracts/datapath/event-source.js';
import type { RuleNames } from '#contracts/policy/rule-names.js';

/** Maximum number of former policies whose rule names are kept. A flow can outlive its policy. */
const FORMER = 16;
const FORMER_RANKS = 1 << 20;

/**
 * The rule names of the compiled policy in force and of former policies. The history keeps the names of
 * former policies because flows may still refer to their rules.
 */
export class RuleNameHistory {
  #staged: StagedRuleNames | undefined;
  /** Rule names, newest first; element 0 belongs to the policy in force. */
  #flipped: FlippedRuleNames[] = [];
  #finder: Finder | undefined;
  /** The rule names of the last confirmed policy (base) while the policy in force is unconfirmed. */
  #base: FlippedRuleNames | undefined;

  get inForce(): FlippedRuleNames | undefined {
    return this.#flipped[0];
  }

  /** The rule names of the policy in force and of former policies, oldest first. */
  get placed(): readonly FlippedRuleNames[] {
    return this.#flipped.toReversed();
  }

  get staged(): StagedRuleNames | undefined {
    return this.#staged;
  }

  stage(placed: StagedRuleNames): void {
    this.#staged = placed;
  }

  unstage(): void {
    this.#staged = undefined;
  }

  flip(epoch: number): void {
    if (this.#staged === undefined)
      throw new Error('put the rule names of a new policy in force: no rule names were staged before');
    this.place({ ...this.#staged, epoch });
    this.#staged = undefined;
  }

  /**
   * Keeps the rule names of the policy in force for a later call of `revert`. If those of an earlier base
   * (last confirmed policy) are kept, keeps these instead.
   */
  keepBase(): void {
    this.#base ??= this.inForce;
  }

  forgetBase(): void {
    this.#base = undefined;
  }

  /**
   * Adds the rule names of the base (last confirmed policy), which is in force again from this epoch on, and
   * returns them. Returns undefined if this process does not know them.
   */
  revert(epoch: number, generation: number): FlippedRuleNames | undefined {
    if (this.#base === undefined) return undefined;
    const placed = { ...this.#base, epoch, generation };
    this.place(placed);
    return placed;
  }

  /**
   * Adds the rule names of a policy that is in force from the given epoch (activation number) on. Removes the
   * oldest rule names beyond the limits `FORMER` (policies) and `FORMER_RANKS` (rules and defaults).
   */
  place(placed: FlippedRuleNames): void {
    const kept: FlippedRuleNames[] = [placed];
    let ranks = 0;
    for (const former of this.#flipped) {
      ranks += former.entries.length;
      if (kept.length <= FORMER && ranks <= FORMER_RANKS) kept.push(former);
    }
    this.#flipped = kept;
    this.#finder = undefined;
  }

  /**
   * Returns the rule names of the policy that was activated with this generation number, or is staged with
   * it; undefined if the history has no such policy.
   */
  ofGeneration(generation: number): RuleNames | undefined {
    if (this.#staged?.generation === generation) return this.#staged.ruleNames;
    return this.#flipped.find((placed) => placed.generation === generation)?.ruleNames;
  }

  /**
   * Returns the generation (the API's number of an activation) for the epoch (the datapath's number of the
   * same activation). Undefined if the history does not contain the epoch, for example because another
   * process put that policy in force.
   */
  generationOf(epoch: number): number | undefined {
    return this.#flipped.find((placed) => placed.epoch === epoch)?.generation;
  }

  /** Returns a function that finds rule names. It is valid until another policy is put in force. */
  finder(): Finder {
    this.#finder ??= new Finder(this.#flipped);
    return this.#finder;
  }
}

/**
 * Finds the rule whose packets are counted at an index of the map `hits`. Uses the newest rule names that
 * contain the index.
 */
export class Finder {
  readonly #stagedNames: readonly StagedRuleNames[];
  readonly #ruleNamesOf: Uint8Array;
  readonly #rankOf: Uint32Array;

  constructor(stagedNames: readonly StagedRuleNames[]) {
    this.#stagedNames = stagedNames;
    let highest = 0;
    for (const { entries } of stagedNames) for (const entry of entries) if (entry > highest) highest = entry;
    this.#ruleNamesOf = new Uint8Array(highest + 1);
    this.#rankOf = new Uint32Array(highest + 1);
    for (let number = stagedNames.length; number > 0; number--) {
      const { entries } = itemAt(stagedNames, number - 1);
      for (let rank = 0; rank < entries.length; rank++) {
        const entry = u32At(entries, rank);
        if (entry === 0) continue;
        this.#ruleNamesOf[entry] = number;
        this.#rankOf[entry] = rank;
      }
    }
  }

  /**
   * Returns the rule whose packets are counted at index `entry` of `hits`, if the low 32 bits of the rule's
   * identity are `check`; else undefined.
   */
  find(entry: number, check: number): { readonly ruleNames: RuleNames; readonly rank: number } | undefined {
    const placed = this.#stagedNames[(this.#ruleNamesOf[entry] ?? 0) - 1];
    const rank = this.#rankOf[entry] ?? 0;
    return placed?.ruleNames.identities[2 * rank] === check ? { ruleNames: placed.ruleNames, rank } : undefined;
  }

  /**
   * Returns an array with one element for each index of `hits`: the low 32 bits of the identity of the rule
   * that counts there, or 0 if `wanted` rejects the rule.
   */
  checks(wanted: (ruleNames: RuleNames) => (rank: number) => boolean): Uint32Array {
    const found = new Uint32Array(this.#rankOf.length);
    const tests = this.#stagedNames.map(({ ruleNames }) => wanted(ruleNames));
    for (let entry = 1; entry < found.length; entry++) {
      const number = u8At(this.#ruleNamesOf, entry) - 1;
      if (number < 0) continue;
      const rank = u32At(this.#rankOf, entry);
      if (tests[number]?.(rank) === true) found[entry] = this.#stagedNames[number]?.ruleNames.identities[2 * rank] ?? 0;
    }
    return found;
  }
}
