import { setTimeout as pause } from 'node:timers/promises';
import { type AssertionProblem, readAssertions } from '#analysis/answer/assertion-document.js';
import { unregioned } from '#analysis/answer/unregioned.js';
import { spacesOf } from '#analysis/engine/address-space.js';
import { Refused } from '#bus/refused.js';
import type { Assertion, AssertionResult } from '#contracts/analysis/assertion.js';
import { etagOf } from '#contracts/policy/policy-record.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { assertionsSchema } from '#policy/document/assertion-schema.js';
import { orRefusal } from '#store/or-refusal.js';
import { StoreError } from '#store/store-error.js';
import type { AssertionList, AssertionStore } from '#store/store-types.js';
import { type AnalysisPorts, analysePolicies, type PolicyReference } from './analysis.js';
import { formerPlace } from './write/assertion-check.js';

/** The maximum number of sets of flows (regions) for each assertion in a response. */
const REGIONS = 3;
/** The time in milliseconds for which a response waits for results. The analysis goes on after it. */
const RESULTS_WAIT_MS = 2_000;

export type AssertionWrite = {
  /** Returns the new list for the stored one; null if this build cannot read the stored one. */
  readonly change: (stored: readonly Assertion[] | null) => readonly Assertion[] | Refusal;
  /** The id of the one assertion that the request has: pointers of problems then begin in it. */
  readonly only?: string;
  readonly author: string;
  readonly expectedRevision?: number;
  readonly dryRun: boolean;
};

export type AssertionOperations = {
  /** Throws `store_damaged` for a list that this build cannot read. */
  read(): Promise<AssertionList>;
  /** Returns the revision of the list; 0 for a list that this build cannot read, which a write replaces. */
  readRevision(): Promise<Pick<AssertionList, 'revision'>>;
  /**
   * Returns the result of each assertion of a list for the policy in force. Results that are not known after
   * 2 s are `unknown`. `subject`: the subject of the client's API token.
   */
  results(list: AssertionList, subject: string): Promise<readonly AssertionResult[]>;
  /** Returns a refusal with all problems of a document with assertions; null if it is valid. */
  problemsOf(document: unknown): Refusal | null;
  /** Writes the list. A dry run returns the list that it would write. */
  write(write: AssertionWrite): Promise<AssertionWritten | Refusal>;
};
type AssertionWritten = { readonly kind: 'written'; readonly list: AssertionList };

type Ports = {
  readonly store: AssertionStore;
  readonly analysis: AnalysisPorts;
  readonly waitMs?: number;
};

export function assertionsOver({ store, analysis, waitMs = RESULTS_WAIT_MS }: Ports): AssertionOperations {
  const spaces = spacesOf(analysis.surroundings.ipv6);
  /** The results for the latest request, with its list of assertions and its policy as the key. */
  let latest: { readonly key: string; readonly found: Promise<readonly AssertionResult[] | Refusal> } | null = null;
  return {
    read: () => store.read(),
    readRevision: async () => (await readable(store)) ?? { revision: 0 },
    async results({ assertions, revision }, subject) {
      if (assertions.length === 0) return [];
      const active = await analysis.policies.active().catch(() => null);
      const key = `${revision} ${etagOf(active?.record ?? null)} ${active?.record.updated_at ?? ''} ${JSON.stringify(assertions)}`;
      if (latest?.key !== key) {
        const inForce = active?.record ?? null;
        const asked = { key, found: orRefusal(() => resultsOf(analysis, assertions, inForce, subject)) };
        latest = asked;
        const forget = (): void => {
          if (latest === asked) latest = null;
        };
        // Do not keep a refusal (such as a full queue) or an error: the next request computes the results
        // again.
        void asked.found.then((found) => {
          if ('code' in found) forget();
        }, forget);
      }
      const { found } = latest;
      const waiting = new AbortController();
      const late = pause(waitMs, null, { signal: waiting.signal }).catch(() => null);
      const results = await Promise.race([found, late]).finally(() => waiting.abort());
      if (results === null)
        return assertions.map(({ id }) => unregioned(id, 'unknown', 'the assertion is being checked; ask again'));
      if ('code' in results) return assertions.map(({ id }) => unregioned(id, 'unknown', results.detail));
      return results;
    },
    problemsOf: (document) => {
      const read = readAssertions(document, assertionsSchema, spaces);
      return 'problems' in read ? invalid(read.problems, '') : null;
    },
    write: ({ change, only, author, expectedRevision, dryRun }) =>
      orRefusal<AssertionWritten>(async () => {
        const next = (stored: readonly Assertion[] | null): readonly Assertion[] => {
          const changed = change(stored);
          if ('code' in changed) throw new Refused(changed);
          const read = readAssertions({ assertions: changed }, assertionsSchema, spaces);
          if ('problems' in read) throw new Refused(invalid(read.problems, placeOf(changed, only)));
          return changed;
        };
        try {
          if (!dryRun) return { kind: 'written', list: await store.write(author, expectedRevision, next) };
          const stored = await readable(store);
          const none = { revision: 0, updated_at: null, updated_by: null };
          return { kind: 'written', list: { ...(stored ?? none), assertions: next(stored?.assertions ?? null) } };
        } catch (failure) {
          if (failure instanceof Refused) return failure.refusal;
          throw failure;
        }
      }),
  };
}

/** Reads the list. Returns null if this build cannot read it. */
async function readable(store: AssertionStore): Promise<AssertionList | null> {
  return store.read().catch((failure: unknown) => {
    if (failure instanceof StoreError && failure.code === 'store_damaged') return null;
    throw failure;
  });
}

/** Returns the JSON pointer of the one assertion that a request has. */
function placeOf(assertions: readonly Assertion[], only: string | undefined): string {
  return only === undefined ? '' : `/assertions/${assertions.findIndex(({ id }) => id === only)}`;
}

/**
 * Returns a refusal with problems of assertions. `base`: the JSON pointer of the request body in the list.
 */
function invalid(found: readonly AssertionProblem[], base: string): Refusal {
  const problems = found.map((problem) =>
    problem.pointer.startsWith(`${base}/`) ? { ...problem, pointer: problem.pointer.slice(base.length) } : problem,
  );
  const [first] = problems;
  const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : '';
  return { ...refusal('invalid_request', `${first?.pointer ?? ''}: ${first?.message ?? ''}${more}`), problems };
}

async function resultsOf(
  analysis: AnalysisPorts,
  assertions: readonly Assertion[],
  inForce: { readonly id: string } | null,
  subject: string,
): Promise<readonly AssertionResult[] | Refusal> {
  const references: PolicyReference[] = [{ kind: 'active' }];
  const former: Record<string, number> = {};
  for (const assertion of assertions) {
    const place = await formerPlace(analysis.policies, assertion, inForce);
    if (place === null || (await analysis.policies.revision(place.id, place.revision).catch(() => null)) === null)
      continue;
    former[assertion.id] = references.length;
    references.push({ kind: 'stored', ...place });
  }
  const document = { assertions };
  const question = { kind: 'assertions', document, former, mayLackGroups: true, limit: REGIONS } as const;
  const asked = { subject, signal: new AbortController().signal };
  const answer = await analysePolicies(analysis, references, question, asked);
  if (answer.kind === 'assertions') return answer.results;
  return answer.kind === 'refused' ? answer : refusal('feature_unavailable', 'the assertions could not be checked');
}
