import type { Observable } from 'rxjs';
import { map, merge, Subject } from 'rxjs';
import type { Assertion } from '#contracts/analysis/assertion.js';
import type { FormerRevision } from '#store/policies/history-bounds.js';
import { intactRecord } from '#store/records/intact-values.js';
import { encodeJson } from '#store/records/json-value.js';
import { type AssertionRecord, RECORDS } from '#store/records/records.js';
import { changesOf } from '#store/shared-changes.js';
import { StoreError } from '#store/store-error.js';
import type { AssertionList, AssertionStore, KvReads, KvStore, SharedStore } from '#store/store-types.js';
import { createRevisedWrites } from './revised-writes.js';

/** The store key of the list of assertions. */
export const ASSERTIONS = RECORDS.assertions.prefix;

const NONE: AssertionList = { revision: 0, assertions: [], updated_at: null, updated_by: null };

type Options = {
  /** The store `kv` if the nodes of a cluster share it; null on a single node. */
  readonly shared?: Pick<SharedStore, 'applied'> | null;
  readonly now?: () => Date;
};

export function createAssertionStore(
  kv: KvStore,
  { shared = null, now = () => new Date() }: Options = {},
): AssertionStore {
  const revised = createRevisedWrites(kv, shared);
  const written = new Subject<void>();
  /** The list that was read last. A policy write reads it each time, and it rarely changes. */
  let last: { readonly bytes: Uint8Array; readonly list: AssertionList } | null = null;
  const followed: Observable<unknown>[] = shared === null ? [] : [changesOf(shared, (key) => key === ASSERTIONS)];
  return {
    async read() {
      const bytes = await kv.get(ASSERTIONS);
      if (bytes === null) return NONE;
      if (last === null || Buffer.compare(last.bytes, bytes) !== 0)
        last = { bytes, list: RECORDS.assertions.read(ASSERTIONS, bytes) };
      return last.list;
    },
    write: (author, expected, next) =>
      revised(ASSERTIONS, expected, async (writes) => {
        let isReadable = true;
        const stored = await intactRecord(kv, RECORDS.assertions, ASSERTIONS, () => {
          isReadable = false;
        });
        const before = stored ?? NONE;
        if (expected !== undefined && expected !== before.revision)
          throw new StoreError(
            'revision_conflict',
            `write the assertions: their revision is ${before.revision}, and ${expected} was expected`,
          );
        const record: AssertionRecord = {
          revision: before.revision + 1,
          updated_at: now().toISOString(),
          updated_by: author,
          assertions: next(isReadable ? before.assertions : null),
        };
        await writes.put(ASSERTIONS, encodeJson(record), { sync: true });
        written.next();
        return record;
      }),
    changed: merge(written, ...followed).pipe(map(() => {})),
  };
}

/** Reads the list. Throws `store_damaged` for a list that this build cannot read. */
export async function readAssertionList(kv: KvReads): Promise<AssertionList> {
  const bytes = await kv.get(ASSERTIONS);
  return bytes === null ? NONE : RECORDS.assertions.read(ASSERTIONS, bytes);
}

/** Returns the revisions that assertions compare with. */
export function formerRevisions(assertions: readonly Assertion[]): readonly FormerRevision[] {
  return assertions.flatMap((assertion) => {
    const former = 'opens_nothing_since' in assertion ? assertion.opens_nothing_since : undefined;
    return former !== undefined && 'revision' in former ? [former] : [];
  });
}
