import { GrowingUint32Array } from '#arrays/growing-uint32-array.js';
import { itemAt, u32At } from '#arrays/read.js';
import { Sequences } from '#policy/compile/sequences.js';
import type { Budget } from '#policy/model/budget.js';
import type { Pieces } from './pieces.js';

/**
 * The nodes of the level below a level of a decision diagram, or the decision lists below the lowest level.
 * Node 0 decides no flow.
 */
export type Below = {
  orElse(first: number, second: number): number;
  isClosed(node: number): boolean;
  /**
   * Returns the numbers of the sets of flows (pieces) that two nodes decide differently; none if they decide
   * every flow in the same way.
   */
  differences(one: number, other: number): readonly number[];
};

/**
 * One level of a decision diagram of intervals (Liu and Gouda call it a firewall decision diagram). A node
 * divides the values 0 … `size` - 1 of one field into intervals, and has a node of the level below for each
 * interval. Equal nodes have the same number. Neighbouring intervals have different nodes below.
 */
export class DiagramLevel implements Below {
  /**
   * Each node is a sequence of pairs: the first value of an interval of the field, and the node of the level
   * below for it.
   */
  readonly #nodes: Sequences;
  readonly #memo = new Map<number, number>();
  readonly #differences = new Map<number, readonly number[]>();
  readonly #closed = new Map<number, boolean>();
  /**
   * The builder for the next node of this level. One is sufficient, because building a node builds no other
   * node of the same level.
   */
  readonly #built = new NodeBuilder();

  constructor(
    readonly size: number,
    private readonly below: Below,
    private readonly pieces: Pieces,
    private readonly budget: Budget,
  ) {
    this.#nodes = new Sequences(budget, 'lists', 2);
    this.#nodes.intern(Uint32Array.of(0, 0), 0, 2);
  }

  /**
   * Returns the node that leads to the lower node `inside` for the values in these intervals, and to
   * `outside` for all other values.
   */
  node(intervals: Iterable<readonly [from: number, to: number]>, inside: number, outside = 0): number {
    const built = this.#built.begin();
    built.add(0, outside);
    for (const [from, to] of intervals) {
      built.add(from, inside);
      if (to < this.size) built.add(to, outside);
    }
    return this.#intern(built);
  }

  isClosed(node: number): boolean {
    if (node === 0) return false;
    const known = this.#closed.get(node);
    if (known !== undefined) return known;
    const cells = this.#nodes.cells.array;
    let closed = true;
    for (let at = this.#nodes.start(node); at < this.#nodes.end(node) && closed; at += 2)
      closed = this.below.isClosed(u32At(cells, at + 1));
    this.#closed.set(node, closed);
    return closed;
  }

  orElse(first: number, second: number): number {
    if (first === 0) return second;
    if (second === 0 || first === second || this.isClosed(first)) return first;
    const key = first * PAIR + second;
    const known = this.#memo.get(key);
    if (known !== undefined) return known;
    const built = this.#built.begin();
    this.#walk(first, second, (from, _to, one, other) => built.add(from, this.below.orElse(one, other)));
    const node = this.#intern(built);
    this.#memo.set(key, node);
    return node;
  }

  /**
   * Combines all these nodes in order by `orElse`. Combines neighbours first, so that most intermediate nodes
   * stay small.
   */
  sequence(nodes: readonly number[]): number {
    let level = nodes;
    while (level.length > 1) {
      const joined: number[] = [];
      for (let at = 0; at < level.length; at += 2) {
        const second = level[at + 1];
        joined.push(second === undefined ? itemAt(level, at) : this.orElse(itemAt(level, at), second));
      }
      level = joined;
    }
    return level[0] ?? 0;
  }

  differences(one: number, other: number): readonly number[] {
    if (one === other) return NOTHING;
    const key = one * PAIR + other;
    const known = this.#differences.get(key);
    if (known !== undefined) return known;
    const intervals = new Map<number, number[]>();
    this.#walk(one, other, (from, to, left, right) => {
      for (const piece of this.below.differences(left, right)) addInterval(intervals, piece, from, to);
    });
    const found = this.pieces.extend(intervals);
    this.#differences.set(key, found);
    return found;
  }

  /** Visits the largest intervals of values for which each of the two nodes leads to a single lower node. */
  #walk(first: number, second: number, visit: (from: number, to: number, one: number, other: number) => void): void {
    // `visit` does not add nodes to this level, so these arrays stay the same.
    const cells = this.#nodes.cells.array;
    let [left, right] = [this.#nodes.start(first), this.#nodes.start(second)];
    const [leftEnd, rightEnd] = [this.#nodes.end(first), this.#nodes.end(second)];
    this.budget.steps((leftEnd - left + rightEnd - right) / 2);
    for (let from = 0; from < this.size; ) {
      const leftTo = left + 2 < leftEnd ? u32At(cells, left + 2) : this.size;
      const rightTo = right + 2 < rightEnd ? u32At(cells, right + 2) : this.size;
      const to = Math.min(leftTo, rightTo);
      visit(from, to, u32At(cells, left + 1), u32At(cells, right + 1));
      if (leftTo === to) left += 2;
      if (rightTo === to) right += 2;
      from = to;
    }
  }

  #intern({ cells }: NodeBuilder): number {
    return this.#nodes.intern(cells.array, 0, cells.length);
  }
}

/**
 * Collects the intervals of a node in ascending order, and joins neighbours that lead to the same lower node.
 */
class NodeBuilder {
  readonly cells = new GrowingUint32Array(16);

  begin(): this {
    this.cells.length = 0;
    return this;
  }

  add(from: number, below: number): void {
    const { cells } = this;
    // Replace the last interval if the new one begins at the same value.
    if (cells.length > 0 && cells.array[cells.length - 2] === from) cells.length -= 2;
    if (cells.length > 0 && cells.array[cells.length - 1] === below) return;
    cells.push(from);
    cells.push(below);
  }
}

/** Adds an interval to the ascending intervals of a key. Joins it with the last interval if they touch. */
export function addInterval(intervals: Map<number, number[]>, key: number, from: number, to: number): void {
  const known = intervals.get(key);
  if (known === undefined) intervals.set(key, [from, to]);
  else if (known.at(-1) === from) known[known.length - 1] = to;
  else known.push(from, to);
}

const NOTHING: readonly number[] = [];
const PAIR = 2 ** 26;
