import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import { errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { flag, oneOrMore } from '#api/requests/query-parameters.js';
import type { Check, ReadinessReport } from '#contracts/readiness.js';
import { inForceGeneration, inForceSince } from './in-force.schema.js';

const HealthSchema = z
  .object({ status: z.literal('ok') })
  .meta({ id: 'Health', description: 'The process responds.', examples: [{ status: 'ok' }] });

const CheckSchema = z
  .object({
    name: z.string(),
    ok: z.boolean(),
    state: z.string().describe("The state of the part's statechart."),
    detail: z.string(),
    since: instant,
    excluded: z.literal(true).optional().describe('Present if `exclude` names this check; `ready` ignores the check.'),
  })
  .meta({
    id: 'ReadinessCheck',
    examples: [
      { name: 'policy_ready', ok: true, state: 'active', detail: 'generation 7', since: '2026-01-31T12:00:00.000Z' },
    ],
  });
const ReadinessSchema = z
  .object({
    ready: z.boolean().describe('Whether every check passes, apart from the excluded checks.'),
    time: instant.describe('The time of the clock of the node.'),
    generation: inForceGeneration,
    in_force_since: inForceSince,
    checks: z.array(CheckSchema),
  })
  .meta({ id: 'Readiness', description: 'All readiness checks, in a fixed order.' });

export const readinessResource: Resource = (api, management) => {
  api.get(
    '/ready',
    {
      config: { access: { management: 'public', metrics: 'public', peers: 'read' } },
      schema: {
        operationId: 'getReadiness',
        tags: ['observation'],
        summary: 'Readiness, check by check',
        description: 'With `?verbose` or `Accept: text/plain` the response is text with one line per check.',
        querystring: z.strictObject({
          verbose: flag.optional().describe('Answer as text.'),
          exclude: oneOrMore
            .transform((lists) => lists.flatMap((list) => list.split(',')))
            .optional()
            .describe(
              'Names of checks, separated by commas, that `ready` and the status of the response ignore; may be repeated.',
            )
            .meta({ examples: ['cluster,policy_replication'] }),
        }),
        response: {
          200: {
            description: 'Every check that is not excluded passes.',
            content: { 'application/json': { schema: ReadinessSchema }, 'text/plain': { schema: z.string() } },
          },
          ...errorAnswers(...errorsOf.public),
          503: {
            description: 'A check that is not excluded fails.',
            content: { 'application/json': { schema: ReadinessSchema }, 'text/plain': { schema: z.string() } },
          },
        },
      },
    },
    async (request, reply) => {
      const { verbose, exclude = [] } = request.query;
      const report = excluding(management.readiness(), exclude);
      reply.code(report.ready ? 200 : 503);
      if (verbose || prefersText(request.headers.accept))
        return reply.type('text/plain; charset=utf-8').send(asText(report));
      const { generation, since } = management.enforcement();
      return reply.type('application/json; charset=utf-8').send({
        ready: report.ready,
        time: new Date().toISOString(),
        generation,
        in_force_since: since,
        checks: [...report.checks],
      });
    },
  );
};

type ShownCheck = Check & { readonly excluded?: true };
type ShownReport = { readonly ready: boolean; readonly checks: readonly ShownCheck[] };

/** Marks the checks whose names are in `excluded`, and computes `ready` without these checks. */
function excluding(report: ReadinessReport, excluded: readonly string[]): ShownReport {
  if (excluded.length === 0) return report;
  const names = report.checks.map(({ name }) => name);
  const unknown = [...new Set(excluded)].filter((name) => !names.includes(name));
  if (unknown.length > 0) throw unknownCheck(unknown, names);
  const isExcluded = ({ name }: Check): boolean => excluded.includes(name);
  return {
    ready: report.checks.every((check) => check.ok || isExcluded(check)),
    checks: report.checks.map((check) => (isExcluded(check) ? { ...check, excluded: true } : check)),
  };
}

function unknownCheck(unknown: readonly string[], names: readonly string[]): ApiError {
  const which = unknown.map((name) => JSON.stringify(name)).join(', ');
  const message = `No readiness check is named ${which}. The checks are ${names.join(', ')}.`;
  return new ApiError('invalid_query', `no readiness check is named ${which}`, [
    { pointer: '?exclude', code: 'invalid_parameter', message },
  ]);
}

function prefersText(accept: string | undefined): boolean {
  return accept !== undefined && /\btext\/plain\b/.test(accept) && !/\bapplication\/json\b/.test(accept);
}

function asText({ ready, checks }: ShownReport): string {
  return [...checks.map(line), ready ? 'ready' : 'not ready', ''].join('\n');
}

function line({ name, ok, state, detail, excluded }: ShownCheck): string {
  const which = excluded ? `${name} excluded:` : name;
  return ok ? `[+]${which} ok` : `[-]${which} failed: ${state}${detail === '' ? '' : `: ${detail}`}`;
}

export const healthResource: Resource = (api) => {
  api.get(
    '/health',
    {
      config: { access: { management: 'public', metrics: 'public' } },
      schema: {
        operationId: 'getHealth',
        tags: ['observation'],
        summary: 'Process liveness',
        response: { 200: HealthSchema, ...errorAnswers(...errorsOf.public) },
      },
    },
    async () => ({ status: 'ok' as const }),
  );
};
