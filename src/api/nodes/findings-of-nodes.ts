import type { z } from 'zod';
import { refused } from '#api/errors/error-answer.js';
import { FindingsSchema, filterOf, type findingsQuery, MAX_IDS, shownPage } from '#api/findings/audit.schema.js';
import { append } from '#arrays/append.js';
import { EVERY_FINDING, type FindingQuery } from '#observe/findings/finding-filter.js';
import type { Management } from '../management.js';
import { askNodes } from './ask-nodes.js';
import { MergedFindings } from './merged-findings.js';

export type ShownFindings = z.infer<typeof FindingsSchema>;
type Query = z.infer<typeof findingsQuery>;

/**
 * The time limits in milliseconds for the first query (the newest findings) and the second query (older
 * findings with the same ids).
 */
const FIRST_MS = 1_500;
const SECOND_MS = 500;

const LOCAL = '/api/v1/audit/findings/local';

/** Returns a page of the findings of this node. Throws an `ApiError` if the node refuses. */
export async function findingsOfNode({ findings }: Management, query: FindingQuery): Promise<ShownFindings> {
  const page = await findings.query(query);
  if ('kind' in page) throw refused(page);
  return shownPage(page, findings.nodeId);
}

/**
 * Returns a page of the findings of all nodes. `asked` are the query parameters of the request. Queries the
 * nodes twice: for their newest findings, and then for older findings with the same ids.
 */
export async function findingsOfNodes(
  management: Management,
  query: Query,
  asked: URLSearchParams,
  { limit, cursor }: Pick<FindingQuery, 'limit' | 'cursor'>,
): Promise<ShownFindings> {
  const filter = filterOf(query);
  const others = await management.peers.others();
  if (others.length === 0) return findingsOfNode(management, { filter, limit, cursor });
  const self = management.findings.nodeId;
  const merged = new MergedFindings({ limit, cursor, untilMs: filter.untilMs });
  const first = new URLSearchParams(asked);
  first.delete('format');
  first.set('limit', String(limit));
  if (cursor !== null) first.set('cursor', cursor);
  const [coverage, own] = await Promise.all([
    askNodes(management, `${LOCAL}?${first.toString()}`, FindingsSchema, (node, page) => merged.add(node, page), {
      withinMs: FIRST_MS,
    }),
    findingsOfNode(management, { filter, limit, cursor }),
  ]);
  merged.add(self, own);
  const ids = merged.idsOfPage();
  const errors = [...coverage.node_errors];
  if (coverage.nodes_responded > 1) {
    for (let at = 0; at < ids.length; at += MAX_IDS) {
      const some = ids.slice(at, at + MAX_IDS);
      const parameters = new URLSearchParams([['limit', String(MAX_IDS)], ...typesOf(filter.types), ...idsOf(some)]);
      const path = `${LOCAL}?${parameters.toString()}`;
      const options = { without: errors.map(({ node_id: node }) => node), withinMs: SECOND_MS };
      const complete = (node: string, { items }: ShownFindings): void => merged.complete(node, items);
      const again = await askNodes(management, path, FindingsSchema, complete, options);
      append(errors, again.node_errors);
      const known = { ...EVERY_FINDING, ids: some, types: filter.types };
      const { items } = await findingsOfNode(management, { filter: known, limit: MAX_IDS, cursor: null });
      merged.complete(self, items);
    }
  }
  const { nodes_queried: queried } = coverage;
  return {
    ...merged.page(),
    partial: errors.length > 0,
    node_errors: errors,
    nodes_queried: queried,
    nodes_responded: queried - errors.length,
  };
}

const idsOf = (ids: readonly string[]): [string, string][] => ids.map((id) => ['id', id]);
const typesOf = (types: readonly string[]): [string, string][] => types.map((type) => ['finding_type', type]);
