import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { wholeNumber } from '#api/requests/query-parameters.js';
import { STEP_MS, STEPS, type StatsSeriesView } from '#observe/metrics/stats-series.js';

const series = z.array(z.int().min(0).nullable());
const byVerdict = z.object({ allow: series, deny: series, audit: series });

const StatsSeriesSchema = z
  .object({
    step_seconds: z.literal(STEP_MS / 1_000),
    from: instant.describe('The begin of the first step. Steps begin at multiples of `step_seconds` of Unix time.'),
    to: instant.describe('The end of the last step.'),
    dataplane: z.object({
      packets: byVerdict,
      drops: z
        .record(z.string(), series)
        .describe('Packets by drop reason. A reason without a drop in these steps is absent.'),
      flows_opened: series,
      active_flows: series.describe('The number at the end of the step.'),
    }),
    dns: z.object({ queries_allow: series, queries_deny: series }),
    tls: z.object({
      ...byVerdict.shape,
      intercepted: series,
      connections: series.describe('The number at the end of the step.'),
    }),
    http: byVerdict,
  })
  .meta({
    id: 'StatsSeries',
    description:
      'Counters of this node in the last hour, one array element per step, the oldest first. A member has the name and the place of its counter in `GET /api/v1/stats`. ' +
      'Its values are counts per step, apart from `active_flows` and `connections`. ' +
      'A value is null if the step was not measured: the process or the part did not run, the machine was suspended, the clock was changed, or the node was too busy to read its counters in time.',
  });

export const statsSeriesResource: Resource = (api, management) => {
  api.get(
    '/api/v1/stats/series',
    {
      schema: {
        operationId: 'getStatsSeries',
        tags: ['observation'],
        summary: 'Get the counters of the node in steps of 10 seconds, up to one hour back',
        querystring: z.strictObject({
          steps: wholeNumber(1, STEPS)
            .default(STEPS)
            .describe('The number of steps, the newest ones. By default all of the last hour.'),
        }),
        response: { 200: StatsSeriesSchema, ...errorAnswers(...errorsOf.read) },
      },
    },
    async ({ query }) => shown(management.statsSeries(query.steps)),
  );
};

function shown({ fromMs, toMs, series: of, drops }: StatsSeriesView): z.infer<typeof StatsSeriesSchema> {
  const every = (values: (typeof of)['allow']): (number | null)[] => [...values];
  return {
    step_seconds: STEP_MS / 1_000,
    from: new Date(fromMs).toISOString(),
    to: new Date(toMs).toISOString(),
    dataplane: {
      packets: { allow: every(of.allow), deny: every(of.deny), audit: every(of.audit) },
      drops: Object.fromEntries(Object.entries(drops).map(([reason, values]) => [reason, every(values)])),
      flows_opened: every(of.flowsOpened),
      active_flows: every(of.activeFlows),
    },
    dns: { queries_allow: every(of.queriesAllow), queries_deny: every(of.queriesDeny) },
    tls: {
      allow: every(of.tlsAllow),
      deny: every(of.tlsDeny),
      audit: every(of.tlsAudit),
      intercepted: every(of.intercepted),
      connections: every(of.connections),
    },
    http: { allow: every(of.requestsAllow), deny: every(of.requestsDeny), audit: every(of.requestsAudit) },
  };
}
