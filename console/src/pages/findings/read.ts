import { useMemo } from 'preact/hooks';
import { ApiFailure, api, bodyOf, type Schemas } from '../../api/client.js';
import { type Polled, usePolled } from '../../api/polled.js';
import type { Finding } from './folded.js';

const PAGE = 500;
const MOST = 5_000;
const POLL_MS = 5_000;
/** The types of findings about denied traffic. */
export const DENIED_TYPES = ['l4_deny', 'icmp_deny', 'dns_deny', 'tls_deny', 'http_deny'];

export type FoundPage = {
  readonly findings: readonly Finding[];
  /** Whether there are older findings than `MOST`. */
  readonly hasMore: boolean;
  readonly silentNodes: Schemas['Findings']['node_errors'];
};

export type FindingsQuery = Readonly<Record<string, readonly string[]>>;

export const isSwitchedOff = (failure: unknown): boolean =>
  failure instanceof ApiFailure && failure.problem.type.endsWith(':performance_mode_disabled');

type Kept = {
  readonly byId: Map<string, Finding>;
  since: string | null;
  hasMore: boolean;
  /** The refusal of the node while performance mode is off. */
  failure: Error | null;
};

/**
 * Reads the latest 5,000 findings of all nodes, and then repeatedly only the new and the repeated ones.
 * `lastMs`: read only findings that were seen within this period.
 */
export function useFindings(query: FindingsQuery, lastMs: number | null): Polled<FoundPage> {
  const key = JSON.stringify([query, lastMs]);
  const kept = useMemo(
    (): Kept => ({
      byId: new Map<string, Finding>(),
      since: null,
      hasMore: false,
      failure: null,
    }),
    [key],
  );
  return usePolled<FoundPage>(
    async (signal) => {
      // While performance mode is off, there are no findings: request only the setting of performance mode.
      if (kept.failure !== null) {
        const { enabled } = await bodyOf(api.GET('/api/v1/settings/performance-mode', { signal }));
        if (!enabled) throw kept.failure;
        kept.failure = null;
      }
      const begin = lastMs === null ? null : new Date(Date.now() - lastMs).toISOString();
      let cursor: string | null = null;
      let silentNodes: FoundPage['silentNodes'] = [];
      const since = kept.since ?? begin;
      let newest = kept.since;
      let read = 0;
      do {
        // Without `format=jsonl` the body is JSON.
        const page = (await bodyOf(
          api.GET('/api/v1/audit/findings', {
            params: {
              query: {
                ...(query as object),
                ...(since === null ? {} : { since }),
                ...(cursor === null ? {} : { cursor }),
                limit: PAGE,
              },
            },
            signal,
          }),
        ).catch((failure: unknown) => {
          if (failure instanceof Error && isSwitchedOff(failure)) kept.failure = failure;
          throw failure;
        })) as Schemas['Findings'];
        for (const finding of page.items) {
          kept.byId.set(finding.id, finding);
          if (newest === null || finding.last_seen > newest) newest = finding.last_seen;
        }
        read += page.items.length;
        silentNodes = page.node_errors;
        cursor = page.next_cursor;
      } while (cursor !== null && read < MOST);
      if (kept.since === null) kept.hasMore = cursor !== null;
      // Do not move the start of the next query if a node did not respond: that node may have older findings
      // than the newest finding of the other nodes.
      if (silentNodes.length === 0) kept.since = newest;
      for (const [id, { last_seen }] of kept.byId) if (begin !== null && last_seen < begin) kept.byId.delete(id);
      const findings = [...kept.byId.values()].sort((one, other) => (one.last_seen < other.last_seen ? 1 : -1));
      for (const { id } of findings.splice(MOST)) kept.byId.delete(id);
      return { findings, hasMore: kept.hasMore, silentNodes };
    },
    POLL_MS,
    key,
  );
}
