import { z } from 'zod';
import { authorOf } from '#api/access/authentication.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { dryRunMember, dryRunQuery, flag, noQuery } from '#api/requests/query-parameters.js';
import { RELOAD_RESULTS } from '#contracts/config/config-reload.js';

const PATH = '/api/v1/config/reload';
const pointers = z.array(z.string());
const applied = pointers.describe('JSON pointers of the changed fields that are in force now.');
const needsRestart = pointers.describe(
  'JSON pointers of the changed fields, and of added or removed sections, that take effect at the next start of the node.',
);

const reloadQuery = dryRunQuery.extend({
  allow_unpoliced: flag
    .optional()
    .describe(
      'Whether the reload may end the policing of interfaces that exist: those that `dataplane.interfaces` does not name any more, and those that were renamed. Their packets then pass without a policy.',
    ),
  allow_open: flag
    .optional()
    .describe(
      'Whether the file may change `dataplane.ipv6` from `drop` to `enforce` although the policy in force allows by default, so that all IPv6 passes after the restart.',
    ),
});

const ConfigReloadSchema = z
  .object({
    applied,
    unchanged: pointers.describe('JSON pointers of the fields with equal values.'),
    needs_restart: needsRestart,
    dry_run: dryRunMember,
  })
  .meta({
    id: 'ConfigReload',
    description: 'The result of a reload, field by field. All fields in `applied` are in force, or none was changed.',
    examples: [
      { applied: ['/dns/upstreams', '/log/level'], unchanged: ['/version'], needs_restart: ['/dataplane/mark_mask'] },
    ],
  });
const ConfigReloadStatusSchema = z
  .object({
    last_reload: z
      .object({
        at: instant,
        by: z.string().describe('The subject of the API token, or `SIGHUP`.'),
        result: z
          .enum(RELOAD_RESULTS)
          .describe(
            '`refused`: the file is not valid, and nothing was changed. `rolled_back`: a part could not apply its settings, and the former settings are in force. `rollback_failed`: `detail` names the parts that lack their former settings.',
          ),
        detail: z.string().nullable().describe('Why the reload failed.'),
        applied,
        needs_restart: needsRestart,
      })
      .nullable()
      .describe('The last reload that was no dry run; null if there was none since the start of the node.'),
  })
  .meta({ id: 'ConfigReloadStatus' });

export const configReloadResource: Resource = (api, { configuration }) => {
  api.get(
    PATH,
    {
      schema: {
        operationId: 'getConfigReload',
        tags: ['settings'],
        summary: 'Get the last reload of the configuration',
        querystring: noQuery,
        response: { 200: ConfigReloadStatusSchema, ...errorAnswers(...errorsOf.read) },
      },
    },
    async () => {
      const last = configuration.lastReload();
      if (last === null) return { last_reload: null };
      const { at, by, result, detail, needsRestart: waiting } = last;
      return { last_reload: { at, by, result, detail, applied: [...last.applied], needs_restart: [...waiting] } };
    },
  );

  api.post(
    PATH,
    {
      schema: {
        operationId: 'reloadConfiguration',
        tags: ['settings'],
        summary: 'Reload the configuration file of the node',
        description:
          'Reads the file again, and puts the changes in force that need no restart: all of them, or none. The signal SIGHUP does the same. A reload that would end the policing of an existing interface is refused, unless `allow_unpoliced` is given. A file that would open IPv6 is refused, unless `allow_open` is given.',
        querystring: reloadQuery,
        response: {
          200: ConfigReloadSchema,
          ...errorAnswers(
            ...errorsOf.write,
            'invalid_config',
            'would_unpolice',
            'would_open',
            'reload_failed',
            'feature_unavailable',
          ),
        },
      },
    },
    async (request) => {
      const {
        dry_run: dryRun = false,
        allow_unpoliced: allowUnpoliced = false,
        allow_open: allowOpen = false,
      } = request.query;
      const report = await configuration.reload({ dryRun, allowUnpoliced, allowOpen, author: authorOf(request) });
      if (report.kind === 'refused') throw refused(report);
      return {
        applied: [...report.applied],
        unchanged: [...report.unchanged],
        needs_restart: [...report.needsRestart],
        ...(dryRun ? { dry_run: true as const } : {}),
      };
    },
  );
};
