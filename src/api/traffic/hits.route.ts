import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { hitsOfNodes } from '#api/nodes/hits-of-nodes.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { queryOf } from '#api/requests/query-string.js';
import { HitsSchema, hitsQuery, shownHits, staleCursor } from './hits.schema.js';

export const hitsResource: Resource = (api, management) => {
  api.get(
    '/api/v1/policy/hits',
    {
      config: { access: { management: 'read', peers: 'read' } },
      schema: {
        operationId: 'getPolicyHits',
        tags: ['policy'],
        summary: 'List packets, bytes and the last hit of each rule and default',
        description:
          'Returns the hits of the active policy. A rule keeps its count while its id, its group and its policy keep their ids: across ' +
          'writes, restarts and upgrades, and if the rule is removed and added again. An inspected connection counts for ' +
          'the rule that decides it, not for the TLS rule that redirected it to the service plane.',
        querystring: hitsQuery,
        response: {
          200: HitsSchema,
          ...errorAnswers(...errorsOf.read, 'feature_unavailable', 'dataplane_unavailable'),
        },
      },
    },
    async ({ query, raw }) => {
      const [generation, from = 0] = query.cursor?.split('.').map(Number) ?? [];
      const { group = [], rule = [], unused, limit } = query;
      const ofCluster = query.scope === 'cluster';
      const wanted = { groups: group, rules: rule, unused: ofCluster ? undefined : unused, from, limit };
      const report = await management.traffic.hits(wanted);
      if ('kind' in report) throw refused(report);
      if (generation !== undefined && generation !== report.generation) throw staleCursor();
      const hits = shownHits(report);
      return ofCluster ? hitsOfNodes(management, hits, queryOf(raw), unused) : hits;
    },
  );
};
