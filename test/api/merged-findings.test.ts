import fc from 'fast-check';
import { expect, test } from 'vitest';
import { MergedFindings, type NodePage } from '#api/nodes/merged-findings.js';
import type { ShownFinding } from '#observe/findings/finding-json.js';
import { cursorOf, readCursor, sortKeyOf } from '#observe/findings/store/index-keys.js';

type Row = { readonly id: number; readonly at: number; readonly count: number };
type Nodes = readonly (readonly Row[])[];

const idOf = (id: number): string => id.toString(16).padStart(32, '0');
const placeOf = ({ id, at }: Row): string => sortKeyOf(at, idOf(id));
const shown = ({ id, at, count }: Row, node: string): ShownFinding =>
  ({ id: idOf(id), first_seen: iso(at), last_seen: iso(at), count, node_ids: [node] }) as unknown as ShownFinding;
const iso = (ms: number): string => new Date(ms).toISOString();

/** Returns the page of a node, like `findPage`. A page can end early although more findings follow. */
function pageOf(rows: readonly Row[], node: string, cursor: string | null, limit: number): NodePage {
  const begin = cursor === null ? '' : (readCursor(cursor) ?? '');
  const sorted = [...rows].sort((a, b) => (placeOf(a) < placeOf(b) ? -1 : 1)).filter((row) => placeOf(row) > begin);
  const items = sorted.slice(0, limit);
  const last = items.at(-1);
  return {
    items: items.map((row) => shown(row, node)),
    next_cursor: sorted.length > limit && last !== undefined ? cursorOf(placeOf(last)) : null,
  };
}

/** Reads all pages, as `findingsOfNodes` does. `early`: the most findings in a response of one node. */
function walk(nodes: Nodes, limit: number, early: number): ShownFinding[] {
  const found: ShownFinding[] = [];
  for (let cursor: string | null = null, pages = 0; ; pages++) {
    if (pages > 200) throw new Error('the walk does not end');
    const merged: MergedFindings = new MergedFindings({ limit, cursor, untilMs: null });
    for (const [at, rows] of nodes.entries())
      merged.add(`n${at}`, pageOf(rows, `n${at}`, cursor, Math.min(limit, early)));
    const ids = new Set(merged.idsOfPage());
    for (const [at, rows] of nodes.entries())
      merged.complete(
        `n${at}`,
        rows.filter((row) => ids.has(idOf(row.id))).map((row) => shown(row, `n${at}`)),
      );
    const page = merged.page();
    expect(page.items.length).toBeLessThanOrEqual(limit);
    found.push(...page.items);
    if (page.next_cursor === null) return found;
    cursor = page.next_cursor;
  }
}

const rows = fc.uniqueArray(
  fc.record({
    id: fc.integer({ min: 1, max: 30 }),
    at: fc.integer({ min: 1, max: 40 }),
    count: fc.integer({ min: 1, max: 9 }),
  }),
  { selector: ({ id }) => id, maxLength: 20 },
);

test('a client that reads all pages of the merged findings gets each finding once, in order, with the sum of the counts of all nodes', () => {
  fc.assert(
    fc.property(
      fc.array(rows, { minLength: 1, maxLength: 4 }),
      fc.integer({ min: 1, max: 12 }),
      fc.integer({ min: 1, max: 12 }),
      (nodes, limit, early) => {
        const all = new Map<number, Row[]>();
        for (const row of nodes.flat()) all.set(row.id, [...(all.get(row.id) ?? []), row]);
        const expected = [...all].map(([id, same]) => ({
          id,
          at: Math.max(...same.map(({ at }) => at)),
          count: same.reduce((sum, { count }) => sum + count, 0),
        }));
        expected.sort((a, b) => (placeOf(a) < placeOf(b) ? -1 : 1));
        const found = walk(nodes, limit, early).map(({ id, last_seen: seen, count }) => [id, seen, count]);
        expect(found).toEqual(expected.map(({ id, at, count }) => [idOf(id), iso(at), count]));
      },
    ),
    { numRuns: 500 },
  );
});
