import type { z } from 'zod';
import type { FindingQuery } from '#observe/findings/finding-filter.js';
import { FindingsSchema, filterOf, type findingsQuery, MOST_IDS, shownPage } from '../audit.schema.js';
import { refused } from '../error-answer.js';
import type { Management } from '../management.js';
import { askNodes } from './ask-nodes.js';
import { MergedFindings } from './merged-findings.js';

export type ShownFindings = z.infer<typeof FindingsSchema>;
type Query = z.infer<typeof findingsQuery>;

const LOCAL = '/api/v1/audit/findings/local';

/** Returns a page of the findings of this node. Throws an `ApiError` if the node refuses. */
export async function findingsOfNode({ findings }: Management, query: FindingQuery): Promise<ShownFindings> {
  const page = await findings.query(query);
  if ('kind' in page) throw refused(page);
  return shownPage(page, findings.nodeId);
}

/**
 * Returns a page of the findings of all nodes. `parameters` are those of the request. The nodes are asked
 * twice: for their newest findings, and then for older findings with the same ids.
 */
export async function findingsOfNodes(
  management: Management,
  query: Query,
  parameters: URLSearchParams,
  { limit, cursor }: Pick<FindingQuery, 'limit' | 'cursor'>,
): Promise<ShownFindings> {
  const filter = filterOf(query);
  const self = management.findings.nodeId;
  const merged = new MergedFindings({ limit, cursor, untilMs: filter.untilMs });
  const first = new URLSearchParams(parameters);
  first.delete('format');
  first.set('limit', String(limit));
  if (cursor !== null) first.set('cursor', cursor);
  const own = findingsOfNode(management, { filter, limit, cursor });
  const coverage = await askNodes(management, `${LOCAL}?${first.toString()}`, FindingsSchema, (node, page) =>
    merged.add(node, page),
  );
  merged.add(self, await own);
  const { ids } = merged;
  const silent = coverage.node_errors.map(({ node_id: node }) => node);
  if (coverage.nodes_responded > 1) {
    for (let at = 0; at < ids.length; at += MOST_IDS) {
      const some = ids.slice(at, at + MOST_IDS);
      const again = new URLSearchParams([['limit', String(MOST_IDS)], ...typesOf(filter.types), ...idsOf(some)]);
      const path = `${LOCAL}?${again.toString()}`;
      await askNodes(management, path, FindingsSchema, (node, { items }) => merged.complete(node, items), silent);
      const known = { ...ofIds(some), types: filter.types };
      const { items } = await findingsOfNode(management, { filter: known, limit: MOST_IDS, cursor: null });
      merged.complete(self, items);
    }
  }
  return { ...merged.page(), ...coverage };
}

const idsOf = (ids: readonly string[]): [string, string][] => ids.map((id) => ['id', id]);
const typesOf = (types: readonly string[]): [string, string][] => types.map((type) => ['finding_type', type]);

const ofIds = (ids: readonly string[]): FindingQuery['filter'] => ({
  ids,
  types: [],
  policyIds: [],
  sourceGroups: [],
  rules: [],
  sources: [],
  destinations: [],
  sinceMs: null,
  untilMs: null,
});
