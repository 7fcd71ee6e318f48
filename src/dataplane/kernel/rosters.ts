import type { Roster } from '#policy/roster.js';

/** A roster that was put in a slot, and the entry of `hits` of each of its ranks. */
export type Placed = { readonly roster: Roster; readonly generation: number; readonly entries: Uint32Array };
type InForce = Placed & { readonly epoch: number };

/** Flows outlive the policy that judged them; so many former rosters are kept to name their rules by. */
const FORMER = 16;
const FORMER_RANKS = 1 << 20;

/** Who stood where, for as long as flows may ask. */
export class Rosters {
  #staged: Placed | undefined;
  /** The newest first: that is what is in force. */
  #flipped: InForce[] = [];
  #finder: Finder | undefined;

  get inForce(): InForce | undefined {
    return this.#flipped[0];
  }

  stage(placed: Placed): void {
    this.#staged = placed;
  }

  unstage(): void {
    this.#staged = undefined;
  }

  flip(epoch: number): void {
    if (this.#staged === undefined) throw new Error('no roster is staged');
    const kept: InForce[] = [{ ...this.#staged, epoch }];
    let ranks = 0;
    for (const former of this.#flipped) {
      ranks += former.entries.length;
      if (kept.length <= FORMER && ranks <= FORMER_RANKS) kept.push(former);
    }
    this.#flipped = kept;
    this.#staged = undefined;
    this.#finder = undefined;
  }

  /** Undefined for what another process put in force. */
  generationOf(epoch: number): number | undefined {
    return this.#flipped.find((placed) => placed.epoch === epoch)?.generation;
  }

  /** Says whose an entry of `hits` is. Holds until the next flip. */
  finder(hitCapacity: number): Finder {
    this.#finder ??= new Finder(this.#flipped, hitCapacity);
    return this.#finder;
  }
}

/** Entry of `hits` → who counts there by the newest roster that has it. */
export class Finder {
  readonly #rosters: readonly Placed[];
  readonly #rosterOf: Uint8Array;
  readonly #rankOf: Uint32Array;

  constructor(rosters: readonly Placed[], hitCapacity: number) {
    this.#rosters = rosters;
    this.#rosterOf = new Uint8Array(hitCapacity);
    this.#rankOf = new Uint32Array(hitCapacity);
    for (let number = rosters.length; number > 0; number--) {
      const { entries } = rosters[number - 1] as Placed;
      for (let rank = 0; rank < entries.length; rank++) {
        const entry = entries[rank] as number;
        if (entry === 0) continue;
        this.#rosterOf[entry] = number;
        this.#rankOf[entry] = rank;
      }
    }
  }

  /** `check` is the low word of the identity; undefined where no roster has it there. */
  find(entry: number, check: number): { readonly roster: Roster; readonly rank: number } | undefined {
    const placed = this.#rosters[(this.#rosterOf[entry] ?? 0) - 1];
    const rank = this.#rankOf[entry] ?? 0;
    return placed?.roster.identities[2 * rank] === check ? { roster: placed.roster, rank } : undefined;
  }

  /** Of each entry the low word of its identity where `wanted` says so of who counts there; else 0. */
  checks(wanted: (roster: Roster) => (rank: number) => boolean): Uint32Array {
    const found = new Uint32Array(this.#rankOf.length);
    const tests = this.#rosters.map(({ roster }) => wanted(roster));
    for (let entry = 1; entry < found.length; entry++) {
      const number = (this.#rosterOf[entry] ?? 0) - 1;
      if (number < 0) continue;
      const rank = this.#rankOf[entry] as number;
      if (tests[number]?.(rank) === true) found[entry] = this.#rosters[number]?.roster.identities[2 * rank] ?? 0;
    }
    return found;
  }
}
