import type { Finding } from '#observe/findings/finding.js';
import { type FindingFilter, type FindingPage, type FindingQuery, fits } from '#observe/findings/finding-filter.js';
import type { KvStore } from '#store/store-types.js';
import { FINDING_RECORDS } from './finding-records.js';
import { cursorOf, indexesFor, readCursor, readSortKey, rowKey, sortKeyOf, TIME, timeKey } from './index-keys.js';
import { IndexWalk, type PlaceRange } from './index-walk.js';

/**
 * The approximate maximum number of findings that one query examines. The examination takes some tens of
 * milliseconds. At the maximum, the query returns the matching findings found so far.
 */
const LOOKED_AT = 1_000;
const ROWS_AT_ONCE = 128;
const PAST_ALL = 'ffffffffffff~';

/**
 * Returns one page of findings. Reads the index with the lowest estimated number of candidates, and compares
 * each candidate with the whole filter.
 */
export async function findPage(kv: KvStore, { filter, limit, cursor }: FindingQuery): Promise<FindingPage> {
  const range = rangeOf(filter.sinceMs, filter.untilMs, cursor);
  if (filter.ids.length > 0) return pageOfIds(kv, filter, range, limit);
  const walk = await shortestWalk(kv, indexesFor(filter), range);
  const items: Finding[] = [];
  let last: string | undefined;
  for (let left = LOOKED_AT; left > 0 && items.length < limit && !walk.ended; left -= ROWS_AT_ONCE) {
    const places = await walk.take(ROWS_AT_ONCE);
    const rows = await kv.getMany(places.map((place) => rowKey(readSortKey(place).id)));
    for (const [at, place] of places.entries()) {
      const finding = findingAt(place, rows[at] ?? null);
      last = place;
      if (finding === null || !fits(filter, finding)) continue;
      items.push(finding);
      if (items.length < limit) continue;
      const behind = at + 1 < places.length || !walk.ended;
      return { items, next: behind ? cursorOf(place) : null };
    }
  }
  return { items, next: last === undefined || walk.ended ? null : cursorOf(last) };
}

async function pageOfIds(
  kv: KvStore,
  filter: FindingFilter,
  { from, to }: PlaceRange,
  limit: number,
): Promise<FindingPage> {
  const ids = [...new Set(filter.ids)];
  const rows = await kv.getMany(ids.map(rowKey));
  const found = ids.flatMap((id, at) => {
    const row = rows[at] ?? null;
    if (row === null) return [];
    const finding: Finding = { ...FINDING_RECORDS.finding.read(rowKey(id), row), id };
    const place = sortKeyOf(finding.lastMs, id);
    return fits(filter, finding) && place >= from && place < to ? [{ place, finding }] : [];
  });
  found.sort((a, b) => (a.place < b.place ? -1 : 1));
  const last = found[limit - 1];
  return {
    items: found.slice(0, limit).map(({ finding }) => finding),
    next: last !== undefined && found.length > limit ? cursorOf(last.place) : null,
  };
}

async function shortestWalk(kv: KvStore, choices: readonly string[][], range: PlaceRange): Promise<IndexWalk> {
  let shortest: IndexWalk | undefined;
  for (const prefixes of choices) {
    const walk = await new IndexWalk(kv, prefixes, range).open();
    if (shortest === undefined || walk.estimate < shortest.estimate) shortest = walk;
  }
  return shortest ?? new IndexWalk(kv, [TIME], range).open();
}

function rangeOf(sinceMs: number | null, untilMs: number | null, cursor: string | null): PlaceRange {
  const start = untilMs === null ? '' : timeKey(untilMs);
  const place = cursor === null ? null : readCursor(cursor);
  if (cursor !== null && place === null) throw new RangeError('query findings: the cursor is not valid');
  const behind = place === null ? '' : `${place}\0`;
  const to = sinceMs === null || sinceMs < 1 ? PAST_ALL : timeKey(sinceMs - 1);
  return { from: behind > start ? behind : start, to };
}

/**
 * Returns the finding of an index entry. Returns null if the finding was removed or seen again after the
 * index was read, because the index entry is then outdated.
 */
function findingAt(place: string, row: Uint8Array | null): Finding | null {
  if (row === null) return null;
  const { lastMs, id } = readSortKey(place);
  const finding = FINDING_RECORDS.finding.read(rowKey(id), row);
  return finding.lastMs === lastMs ? { ...finding, id } : null;
}
