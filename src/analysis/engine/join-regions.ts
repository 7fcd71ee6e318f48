import { itemAt } from '#arrays/read.js';
import { type Pieces, union } from './pieces.js';

/**
 * A region as numbers: of its changes, and of its sets of source ports, keys, destinations and sources.
 */
export type RegionRow = readonly [changes: number, ports: number, keys: number, destinations: number, sources: number];

/** Joins regions that differ in one set only, until no two regions can be joined. */
export function joinedRegions(rows: readonly RegionRow[], pieces: Pieces): readonly RegionRow[] {
  let joined = rows;
  for (;;) {
    const before = joined.length;
    for (const field of [4, 3, 2, 1]) joined = joinedBy(field, joined, pieces);
    if (joined.length === before) return joined;
  }
}

function joinedBy(field: number, rows: readonly RegionRow[], pieces: Pieces): readonly RegionRow[] {
  const alike = new Map<string, RegionRow[]>();
  for (const row of rows) {
    const key = row.map((number, at) => (at === field ? '' : number)).join();
    const known = alike.get(key);
    if (known === undefined) alike.set(key, [row]);
    else known.push(row);
  }
  if (alike.size === rows.length) return rows;
  return [...alike.values()].map((group) => {
    const first = itemAt(group, 0);
    if (group.length === 1) return first;
    const values = union(group.map((row) => pieces.set(itemAt(row, field))));
    return first.map((number, at) => (at === field ? pieces.setNumber(values) : number)) as unknown as RegionRow;
  });
}
