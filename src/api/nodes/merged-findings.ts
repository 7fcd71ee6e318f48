import type { ShownFinding } from '#observe/findings/finding-json.js';
import { cursorOf, readCursor, sortKeyOf } from '#observe/findings/store/index-keys.js';

/** A page of the findings of one node, as the API of that node returns it. */
export type NodePage = { readonly items: readonly ShownFinding[]; readonly next_cursor: string | null };

type Query = {
  readonly limit: number;
  /** The end of the previous page; null for the first page. */
  readonly cursor: string | null;
  /** The latest time of the findings, in milliseconds since 1970; null without this bound. */
  readonly untilMs: number | null;
};

/** The equal findings of several nodes, by node. `place`: the first of their places (sort keys). */
type Equal = { place: string; lastMs: number; readonly id: string; readonly byNode: Map<string, ShownFinding> };

/**
 * Merges the pages of all nodes into one page, the newest finding first. Equal findings have the same id on
 * all nodes, and become one item with the sum of their counts. All nodes sort findings by the same place
 * (sort key), so one cursor is valid for all nodes.
 */
export class MergedFindings {
  readonly #query: Query;
  readonly #byId = new Map<string, Equal>();
  /**
   * The place at which the page must end, because a node has findings after this place that it did not
   * return.
   */
  #horizon: string | null = null;

  constructor(query: Query) {
    this.#query = query;
  }

  /** Adds the page of a node. Keeps only the findings that can be in the merged page. */
  add(node: string, { items, next_cursor: next }: NodePage): void {
    const { cursor } = this.#query;
    const begin = cursor === null ? null : readCursor(cursor);
    const horizon = next === null ? null : readCursor(next);
    // Ignore a cursor at or before the begin of the page, because clients would then get the same page again
    // without end.
    if (horizon !== null && (begin === null || horizon > begin)) this.#end(horizon);
    for (const item of items) this.#put(node, item);
    const { limit } = this.#query;
    if (this.#byId.size <= 2 * limit) return;
    const sorted = this.#sorted();
    for (const { id } of sorted.slice(limit)) this.#byId.delete(id);
    // End the page at the last kept finding, because the findings after it were removed here.
    const last = sorted[limit - 1];
    if (last !== undefined) this.#end(last.place);
  }

  /**
   * Returns the ids of the findings that can be in the page. Ends the page at the last of them, because
   * `complete` is called only for these findings.
   */
  idsOfPage(): readonly string[] {
    const first = this.#sorted().slice(0, this.#query.limit);
    const last = first.at(-1);
    if (last !== undefined && first.length < this.#byId.size) this.#end(last.place);
    return first.map(({ id }) => id);
  }

  /**
   * Adds or replaces the findings of a node with ids of this page. A node can have an older finding with the
   * same id that was not in its first page.
   */
  complete(node: string, items: readonly ShownFinding[]): void {
    for (const item of items) if (this.#byId.has(item.id)) this.#put(node, item);
  }

  page(): NodePage & { readonly items: ShownFinding[] } {
    const { limit, cursor, untilMs } = this.#query;
    const begin = cursor === null ? null : readCursor(cursor);
    const within = this.#sorted().filter(({ place }) => this.#horizon === null || place <= this.#horizon);
    // Omit a finding that has a later event on another node: it is on an earlier page, or later than `until`.
    const found = within
      .filter(({ place }) => begin === null || place > begin)
      .filter(({ lastMs }) => untilMs === null || lastMs <= untilMs)
      .slice(0, limit);
    const last = found.at(-1);
    const isCut = within.some(({ place }) => last !== undefined && place > last.place);
    const end = isCut && last !== undefined ? last.place : this.#horizon;
    return { items: found.map(({ byNode }) => sumOf(byNode)), next_cursor: end === null ? null : cursorOf(end) };
  }

  /** Ends the page at a place (the sort key of a finding), unless the page already ends before it. */
  #end(place: string): void {
    if (this.#horizon === null || place < this.#horizon) this.#horizon = place;
  }

  #put(node: string, item: ShownFinding): void {
    const lastMs = Date.parse(item.last_seen);
    const place = sortKeyOf(lastMs, item.id);
    const known = this.#byId.get(item.id);
    if (known === undefined) {
      this.#byId.set(item.id, { place, lastMs, id: item.id, byNode: new Map([[node, item]]) });
      return;
    }
    known.byNode.set(node, item);
    if (place >= known.place) return;
    known.place = place;
    known.lastMs = lastMs;
  }

  #sorted(): Equal[] {
    return [...this.#byId.values()].sort((a, b) => (a.place < b.place ? -1 : 1));
  }
}

function sumOf(byNode: ReadonlyMap<string, ShownFinding>): ShownFinding {
  const [first, ...others] = [...byNode.values()].sort((a, b) => (a.last_seen > b.last_seen ? -1 : 1));
  if (first === undefined) throw new Error('merge the equal findings of several nodes: the list of findings is empty');
  return {
    ...first,
    first_seen: others.reduce((seen, other) => (other.first_seen < seen ? other.first_seen : seen), first.first_seen),
    count: others.reduce((sum, { count }) => sum + count, first.count),
    node_ids: [...byNode.keys()].sort(),
  };
}
