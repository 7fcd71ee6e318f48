import type { ShownFinding } from '#observe/findings/finding-json.js';
import { cursorOf, readCursor, sortKeyOf } from '#observe/findings/index-keys.js';

/** A page of the findings of one node, as the API of that node returns it. */
export type NodePage = { readonly items: readonly ShownFinding[]; readonly next_cursor: string | null };

type Query = {
  readonly limit: number;
  /** The end of the previous page; null for the first page. */
  readonly cursor: string | null;
  /** The latest time of the findings, in milliseconds since 1970; null without this bound. */
  readonly untilMs: number | null;
};

/**
 * Merges the pages of all nodes into one page, the newest finding first. Equal findings have the same id on
 * all nodes, and become one item with the sum of their counts. All nodes sort findings by the same place, so
 * one cursor serves for all of them.
 */
export class MergedFindings {
  readonly #query: Query;
  /** The findings of each id, by node. */
  readonly #byId = new Map<string, Map<string, ShownFinding>>();
  /** The first place behind which a node has findings that it did not return. */
  #horizon: string | null = null;

  constructor(query: Query) {
    this.#query = query;
  }

  /** Adds the page of a node. Keeps only the findings that can be in the merged page. */
  add(node: string, { items, next_cursor: next }: NodePage): void {
    const horizon = next === null ? null : readCursor(next);
    if (horizon !== null) this.#end(horizon);
    for (const item of items) this.#put(node, item);
    const { limit } = this.#query;
    if (this.#byId.size <= 2 * limit) return;
    for (const { id } of this.#sorted().slice(limit)) this.#byId.delete(id);
    // The removed findings are behind the last one that was kept.
    const last = this.#sorted().at(-1);
    if (last !== undefined) this.#end(placeOf(last));
  }

  /**
   * Returns the ids of the findings that can be in the page. The page does not go beyond them, because only
   * they are completed.
   */
  takeIds(): readonly string[] {
    const first = this.#sorted().slice(0, this.#query.limit);
    const last = first.at(-1);
    if (last !== undefined && first.length < this.#byId.size) this.#end(placeOf(last));
    return first.map(({ id }) => id);
  }

  /** Replaces what is known of findings on a node: a node can have an older finding with the same id. */
  complete(node: string, items: readonly ShownFinding[]): void {
    for (const item of items) if (this.#byId.has(item.id)) this.#put(node, item);
  }

  page(): NodePage & { readonly items: ShownFinding[] } {
    const { limit, cursor, untilMs } = this.#query;
    const begin = cursor === null ? null : readCursor(cursor);
    const sorted = this.#sorted();
    const within = sorted.filter((item) => this.#horizon === null || placeOf(item) <= this.#horizon);
    // A finding with a later event on another node is on an earlier page, or beyond `until`.
    const items = within
      .filter((item) => begin === null || placeOf(item) > begin)
      .filter(({ last_seen }) => untilMs === null || Date.parse(last_seen) <= untilMs)
      .slice(0, limit);
    const last = items.at(-1);
    const isCut = within.some((item) => last !== undefined && placeOf(item) > placeOf(last));
    const end = isCut && last !== undefined ? placeOf(last) : this.#horizon;
    return { items, next_cursor: end === null ? null : cursorOf(end) };
  }

  /** Ends the page at a place, or before it. */
  #end(place: string): void {
    if (this.#horizon === null || place < this.#horizon) this.#horizon = place;
  }

  #put(node: string, item: ShownFinding): void {
    const nodes = this.#byId.get(item.id) ?? new Map<string, ShownFinding>();
    this.#byId.set(item.id, nodes.set(node, item));
  }

  #sorted(): ShownFinding[] {
    return [...this.#byId.values()].map(sumOf).sort((a, b) => (placeOf(a) < placeOf(b) ? -1 : 1));
  }
}

const placeOf = ({ last_seen, id }: ShownFinding): string => sortKeyOf(Date.parse(last_seen), id);

/** Returns one finding for the equal findings of several nodes. */
function sumOf(byNode: ReadonlyMap<string, ShownFinding>): ShownFinding {
  const [first, ...others] = [...byNode.values()].sort((a, b) => Date.parse(b.last_seen) - Date.parse(a.last_seen));
  if (first === undefined) throw new Error('merge findings: there is no finding');
  return {
    ...first,
    first_seen: others.reduce((seen, other) => (other.first_seen < seen ? other.first_seen : seen), first.first_seen),
    count: others.reduce((sum, { count }) => sum + count, first.count),
    node_ids: [...byNode.keys()].sort(),
  };
}
