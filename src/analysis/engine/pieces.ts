import { itemAt } from '#arrays/read.js';
import { Sequences } from '#policy/compile/sequences.js';
import type { Budget } from '#policy/model/budget.js';

/**
 * A set of values of one field, as ascending intervals that do not touch: the first value of each interval,
 * and the value after its last one.
 */
export type ValueSet = readonly number[];

/**
 * Gives numbers to the sets of flows (pieces) that two decision diagrams decide differently. A piece of a
 * level consists of a piece of the level below and a set of values of this level; a piece of the lowest level
 * is a number of `DecisionLists.difference`.
 */
export class Pieces {
  readonly #sets: Sequences;
  readonly #below: number[] = [];
  readonly #set: number[] = [];
  readonly #numbers = new Map<number, number>();

  constructor(budget: Budget) {
    this.#sets = new Sequences(budget, 'lists', 2);
  }

  /**
   * Returns one set of flows (piece) for each piece of the level below, with the set of values of this level.
   */
  extend(sets: ReadonlyMap<number, ValueSet>): readonly number[] {
    return [...sets].map(([below, values]) => this.piece(below, this.setNumber(values)));
  }

  setNumber(values: ValueSet): number {
    return this.#sets.intern(Uint32Array.from(values), 0, values.length);
  }

  set(number: number): ValueSet {
    return [...this.#sets.cells.array.subarray(this.#sets.start(number), this.#sets.end(number))];
  }

  piece(below: number, set: number): number {
    const key = below * PAIR + set;
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    this.#numbers.set(key, this.#below.length);
    this.#below.push(below);
    return this.#set.push(set) - 1;
  }

  /**
   * Returns the parts of a piece (set of flows): the piece of the level below, and the number of the set of
   * values.
   */
  parts(piece: number): readonly [below: number, set: number] {
    return [itemAt(this.#below, piece), itemAt(this.#set, piece)];
  }
}

/** Returns the values that are in at least one of the sets. */
export function union(sets: readonly ValueSet[]): ValueSet {
  const pairs = sets.flatMap((set) => {
    const found: [number, number][] = [];
    for (let at = 0; at < set.length; at += 2) found.push([itemAt(set, at), itemAt(set, at + 1)]);
    return found;
  });
  pairs.sort((left, right) => left[0] - right[0]);
  const merged: number[] = [];
  for (const [from, to] of pairs) {
    const last = merged.at(-1);
    if (last !== undefined && from <= last) merged[merged.length - 1] = Math.max(last, to);
    else merged.push(from, to);
  }
  return merged;
}

const PAIR = 2 ** 26;
