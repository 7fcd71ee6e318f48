import { Readable } from 'node:stream';
import { z } from 'zod';
import type { Resource } from '#api/api.js';
import type { Coverage } from '#api/nodes/ask-nodes.js';
import { findingsOfNode, findingsOfNodes, type ShownFindings } from '#api/nodes/findings-of-nodes.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { queryOf } from '#api/requests/query-string.js';
import { needPerformanceMode } from '#api/settings/performance-mode.route.js';
import { FindingsSchema, filterOf, findingsQuery } from './audit.schema.js';

const JSON_LINES = 'application/x-ndjson';
/**
 * The schema of a JSON Lines response. The response itself is a stream, so its TypeScript type is `Readable`.
 */
const Lines = z
  .string()
  .describe(
    'One finding per line. If a node did not respond, the last line has no finding: `partial`, `node_errors`, `nodes_queried` and `nodes_responded`.',
  ) as unknown as z.ZodType<Readable>;
const USUAL_LIMIT = 100;
const LINES_AT_ONCE = 1_000;

export const auditResource: Resource = (api, management) => {
  for (const [path, operationId, summary, isLocal] of [
    ['/api/v1/audit/findings', 'listFindings', 'List the findings of every node', false],
    ['/api/v1/audit/findings/local', 'listLocalFindings', 'List the findings of this node', true],
  ] as const) {
    api.get(
      path,
      {
        config: { access: { management: 'read', ...(isLocal ? { peers: 'read' } : {}) } },
        schema: {
          operationId,
          tags: ['observation'],
          summary,
          description:
            'Returns denies and refused logins, the newest first. Findings of the types `config_change`, `gap`, `cluster_contradiction` and `value_unreadable` are returned only if `finding_type` names these types. ' +
            'A page can have fewer findings than `limit`, or none, although more pages follow: continue until `next_cursor` is null. A finding that is seen again while you read the pages moves to the front: it is not returned twice, and later pages can omit it.',
          querystring: findingsQuery,
          response: {
            200: {
              description: 'Findings.',
              content: { 'application/json': { schema: FindingsSchema }, [JSON_LINES]: { schema: Lines } },
            },
            ...errorAnswers(...errorsOf.read, 'performance_mode_disabled', 'feature_unavailable', 'store_unavailable'),
          },
        },
      },
      async ({ query, raw }, reply) => {
        await needPerformanceMode(management);
        const { limit, cursor = null, format } = query;
        const parameters = queryOf(raw);
        const pageOf: ReadPage = (place) =>
          isLocal
            ? findingsOfNode(management, { filter: filterOf(query), ...place })
            : findingsOfNodes(management, query, parameters, place);
        if (format === 'json') {
          const page = await pageOf({ cursor, limit: limit ?? USUAL_LIMIT });
          return reply.type('application/json; charset=utf-8').send(page);
        }
        const most = limit ?? Number.POSITIVE_INFINITY;
        // Read the first page before the response starts: if the node refuses the query, the response can
        // still have an error status.
        const first = await pageOf({ cursor, limit: Math.min(most, LINES_AT_ONCE) });
        return reply.type(JSON_LINES).send(Readable.from(lines(pageOf, most, first), { highWaterMark: 1 }));
      },
    );
  }
};

type ReadPage = (place: { readonly cursor: string | null; readonly limit: number }) => Promise<ShownFindings>;

/**
 * Yields the findings as JSON Lines, one page at a time, and then the nodes that did not respond. Reads a
 * page only after the stream of the response has accepted the previous page.
 */
async function* lines(pageOf: ReadPage, most: number, first: ShownFindings): AsyncGenerator<string, void> {
  let left = most;
  const silent = new Map<string, string>();
  for (let page = first; ; ) {
    const text = page.items.map((finding) => `${JSON.stringify(finding)}\n`).join('');
    if (text !== '') yield text;
    for (const { node_id: node, error } of page.node_errors) silent.set(node, error);
    left -= page.items.length;
    if (page.next_cursor === null || left <= 0) {
      if (silent.size > 0) yield `${JSON.stringify(coverageWithout(silent, page.nodes_queried))}\n`;
      return;
    }
    page = await pageOf({ cursor: page.next_cursor, limit: Math.min(left, LINES_AT_ONCE) });
  }
}

function coverageWithout(silent: ReadonlyMap<string, string>, queried: number): Coverage {
  return {
    partial: true,
    node_errors: [...silent].map(([node, error]) => ({ node_id: node, error })),
    nodes_queried: queried,
    nodes_responded: queried - silent.size,
  };
}
