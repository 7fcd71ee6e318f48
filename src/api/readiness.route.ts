import { z } from 'zod';
import type { Check, ReadinessReport } from '#observe/stats.js';
import { errorAnswers, errorsOf, instant } from './answer.schema.js';
import type { Resource } from './api.js';
import { ApiError } from './errors.js';
import { flag, oneOrMore } from './query-parameters.js';

const CheckSchema = z
  .object({
    name: z.string(),
    ok: z.boolean(),
    state: z.string().describe("The state of the part's statechart."),
    detail: z.string(),
    since: instant,
  })
  .meta({
    id: 'ReadinessCheck',
    examples: [
      { name: 'policy_ready', ok: true, state: 'active', detail: 'generation 7', since: '2026-01-31T12:00:00.000Z' },
    ],
  });
const ReadinessSchema = z
  .object({ ready: z.boolean(), checks: z.array(CheckSchema) })
  .meta({ id: 'Readiness', description: 'All readiness checks, in a fixed order.' });

export const readinessResource: Resource = (api, management) => {
  api.get(
    '/ready',
    {
      config: { access: 'public' },
      schema: {
        operationId: 'getReadiness',
        tags: ['observation'],
        summary: 'Readiness, check by check',
        description: 'With `?verbose` or `Accept: text/plain` the response is text with one line per check.',
        querystring: z.strictObject({
          verbose: flag.optional().describe('Answer as text.'),
          exclude: oneOrMore.optional().describe('Excludes this check; may be repeated.'),
        }),
        response: {
          200: {
            description: 'Every check passes.',
            content: { 'application/json': { schema: ReadinessSchema }, 'text/plain': { schema: z.string() } },
          },
          ...errorAnswers(...errorsOf.public),
          503: {
            description: 'A check fails.',
            content: { 'application/json': { schema: ReadinessSchema }, 'text/plain': { schema: z.string() } },
          },
        },
      },
    },
    async (request, reply) => {
      const { verbose, exclude = [] } = request.query;
      const report = without(management.readiness(), exclude);
      reply.code(report.ready ? 200 : 503);
      if (verbose || prefersText(request.headers.accept))
        return reply.type('text/plain; charset=utf-8').send(asText(report));
      return reply.type('application/json; charset=utf-8').send({ ready: report.ready, checks: [...report.checks] });
    },
  );
};

function without(report: ReadinessReport, excluded: readonly string[]): ReadinessReport {
  if (excluded.length === 0) return report;
  const unknown = excluded.filter((name) => !report.checks.some((check) => check.name === name));
  if (unknown.length > 0) {
    throw new ApiError('invalid_query', `no readiness check is named ${unknown.join(', ')}`, [
      { pointer: '?exclude', code: 'invalid_parameter', message: `No readiness check is named ${unknown.join(', ')}.` },
    ]);
  }
  const checks = report.checks.filter(({ name }) => !excluded.includes(name));
  return { ready: checks.every(({ ok }) => ok), checks };
}

function prefersText(accept: string | undefined): boolean {
  return accept !== undefined && /\btext\/plain\b/.test(accept) && !/\bapplication\/json\b/.test(accept);
}

function asText({ ready, checks }: ReadinessReport): string {
  return [...checks.map(line), ready ? 'ready' : 'not ready', ''].join('\n');
}

function line({ name, ok, state, detail }: Check): string {
  return ok ? `[+]${name} ok` : `[-]${name} failed: ${state}${detail === '' ? '' : `: ${detail}`}`;
}
