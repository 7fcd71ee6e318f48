import { Readable } from 'node:stream';
import { z } from 'zod';
import type { FindingPage, FindingQuery } from '#observe/findings/finding-filter.js';
import { shownFinding } from '#observe/findings/finding-json.js';
import { errorAnswers, errorsOf } from './answer.schema.js';
import type { Resource } from './api.js';
import { FindingsSchema, filterOf, findingsQuery, shownPage } from './audit.schema.js';
import { refused } from './error-answer.js';
import type { Management } from './management.js';
import { needPerformanceMode } from './performance-gate.js';

const JSON_LINES = 'application/x-ndjson';
/**
 * The schema of a JSON Lines response. The response itself is a stream, so its TypeScript type is `Readable`.
 */
const Lines = z.string().describe('One finding per line.') as unknown as z.ZodType<Readable>;
const USUAL_LIMIT = 100;
const LINES_AT_ONCE = 1_000;

export const auditResource: Resource = (api, management) => {
  for (const [path, operationId, summary] of [
    ['/api/v1/audit/findings', 'listFindings', 'List the findings of every node'],
    ['/api/v1/audit/findings/local', 'listLocalFindings', 'List the findings of this node'],
  ] as const) {
    api.get(
      path,
      {
        schema: {
          operationId,
          tags: ['observation'],
          summary,
          description:
            'Returns denies and refused logins, the newest first. Findings of the types `config_change`, `gap` and `cluster_contradiction` are returned only if `finding_type` names these types. ' +
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
      async ({ query }, reply) => {
        await needPerformanceMode(management);
        const { findings } = management;
        const { limit, cursor = null, format } = query;
        const filtered = { filter: filterOf(query), cursor };
        if (format === 'json') {
          const page = await pageOf(findings, { ...filtered, limit: limit ?? USUAL_LIMIT });
          return reply.type('application/json; charset=utf-8').send(shownPage(page, findings.nodeId));
        }
        const all = { ...filtered, limit: limit ?? Number.POSITIVE_INFINITY };
        // Read the first page before the response starts: if the node refuses the query, the response can
        // still have an error status.
        const first = await pageOf(findings, { ...all, limit: Math.min(all.limit, LINES_AT_ONCE) });
        return reply.type(JSON_LINES).send(Readable.from(lines(findings, all, first), { highWaterMark: 1 }));
      },
    );
  }
};

async function pageOf(findings: Management['findings'], query: FindingQuery): Promise<FindingPage> {
  const page = await findings.query(query);
  if ('kind' in page) throw refused(page);
  return page;
}

/**
 * Yields the findings as JSON Lines, one page at a time. Reads a page only after the stream of the response
 * has accepted the previous page.
 */
async function* lines(
  findings: Management['findings'],
  all: FindingQuery,
  first: FindingPage,
): AsyncGenerator<string, void> {
  let left = all.limit;
  for (let page = first; ; ) {
    const text = page.items.map((finding) => `${JSON.stringify(shownFinding(finding, findings.nodeId))}\n`).join('');
    if (text !== '') yield text;
    left -= page.items.length;
    if (page.next === null || left <= 0) return;
    page = await pageOf(findings, { ...all, cursor: page.next, limit: Math.min(left, LINES_AT_ONCE) });
  }
}
