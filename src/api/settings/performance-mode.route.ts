import { z } from 'zod';
import { authorOf } from '#api/access/authentication.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError } from '#api/errors/errors.js';
import type { Management } from '#api/management.js';
import { empty, errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { isUnchanged, readForWrite } from '#api/requests/preconditions.js';
import { dryRunMember, dryRunQuery, noQuery } from '#api/requests/query-parameters.js';
import type { PerformanceMode } from '#bus/bus-messages.js';

const shownMembers = {
  enabled: z.boolean(),
  source: z.enum(['local', 'cluster']).nullable().describe('Null while the built-in default applies.'),
};
const WrittenPerformanceModeSchema = z
  .object({ ...shownMembers, dry_run: dryRunMember })
  .meta({ id: 'WrittenPerformanceMode', description: 'The performance mode as it was written.' });
const PerformanceModeSchema = z.object(shownMembers).meta({
  id: 'PerformanceMode',
  description: 'Enables audit findings and the wiretap. Verdicts do not depend on it.',
  examples: [{ enabled: true, source: null }],
});
const PerformanceModeWriteSchema = z
  .strictObject({ enabled: z.boolean() })
  .meta({ id: 'PerformanceModeWrite', examples: [{ enabled: false }] });

const PATH = '/api/v1/settings/performance-mode';
const etagOf = ({ revision }: PerformanceMode) => `"performance-mode.${revision}"`;
const shown = ({ enabled, source }: PerformanceMode) => ({ enabled, source });

export const performanceModeResource: Resource = (api, { performanceMode }) => {
  api.get(
    PATH,
    {
      schema: {
        operationId: 'getPerformanceMode',
        tags: ['settings'],
        summary: 'Get the performance mode',
        querystring: noQuery,
        response: { 200: PerformanceModeSchema, 304: empty, ...errorAnswers(...errorsOf.read, 'store_unavailable') },
      },
    },
    async (request, reply) => {
      const mode = await performanceMode.read();
      if (isUnchanged(request, reply, etagOf(mode))) return reply.code(304).send();
      return reply.send(shown(mode));
    },
  );

  api.put(
    PATH,
    {
      schema: {
        operationId: 'putPerformanceMode',
        tags: ['settings'],
        summary: 'Enable or disable performance mode',
        querystring: dryRunQuery,
        body: PerformanceModeWriteSchema,
        response: {
          200: WrittenPerformanceModeSchema,
          ...errorAnswers(...errorsOf.body, 'invalid_header', 'precondition_failed'),
        },
      },
    },
    async (request, reply) => {
      const { expected } = await readForWrite(request, () => performanceMode.read(), etagOf);
      const { enabled } = request.body;
      if (request.query.dry_run === true) return reply.send({ enabled, source: performanceMode.source, dry_run: true });
      const written = await performanceMode.write({
        enabled,
        author: authorOf(request),
        ...expected,
      });
      if ('kind' in written) throw refused(written);
      return reply.header('etag', etagOf(written)).send(shown(written));
    },
  );
};

/**
 * Throws `performance_mode_disabled` if performance mode is disabled. Routes for findings and for the wiretap
 * call this function first (D34).
 */
export async function needPerformanceMode({ performanceMode }: Management): Promise<void> {
  if (!(await performanceMode.read()).enabled) throw new ApiError('performance_mode_disabled');
}
