import { X509Certificate } from 'node:crypto';
import { z } from 'zod';
import { authorOf, mayAct } from '#api/access/authentication.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError } from '#api/errors/errors.js';
import type { Management } from '#api/management.js';
import { empty, errorAnswers, errorsOf, instant, WarningSchema } from '#api/openapi/answer.schema.js';
import { isUnchanged, readForWrite } from '#api/requests/preconditions.js';
import { dryRunMember, dryRunQuery, NOT_EMPTY, noQuery } from '#api/requests/query-parameters.js';
import type { IntegrationView, StoredIntegrationView } from '#kubernetes/operations/integrations.js';

const NAME = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const PEM_BLOCK = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

const nameSchema = z
  .string()
  .regex(NAME, { error: 'Must be 1 to 63 lower-case letters, digits and hyphens, with no hyphen at either end.' });
const writable = {
  kind: z.literal('kubernetes'),
  api_server_url: z
    .string()
    .refine(isServerUrl, { error: 'Must be an https:// URL without user, query or fragment.' })
    .meta({ format: 'uri', pattern: '^https://' }),
  ca_cert_pem: z.string().refine(isCertificates, { error: 'Must be certificates in PEM.' }),
  service_account_token: z
    .string()
    .regex(/^[\x21-\x7e]{1,16384}$/, { error: 'Must be a token: printable characters without spaces.' })
    .meta({ writeOnly: true }),
};
const writeExample = {
  kind: 'kubernetes',
  api_server_url: 'https://kube.example.com:6443',
  ca_cert_pem: '-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n',
  service_account_token: 'eyJhbGciOiJSUzI1NiJ9.e30.c2ln',
};

const IntegrationCreateSchema = z
  .strictObject({ name: nameSchema, ...writable })
  .meta({ id: 'IntegrationCreate', examples: [{ name: 'prod', ...writeExample }] });
const IntegrationReplaceSchema = z
  .strictObject({ name: nameSchema.optional().describe('Must be the name in the path, or absent.'), ...writable })
  .meta({ id: 'IntegrationReplace', examples: [writeExample] });

const shownMembers = {
  name: z.string(),
  kind: z.literal('kubernetes'),
  in_cluster: z.literal(false),
  api_server_url: z.string(),
  ca_cert_pem: z.string(),
  revision: z.int().min(1),
  created_at: instant,
  updated_at: instant,
  updated_by: z.string(),
};
const IntegrationSchema = z
  .object(shownMembers)
  .meta({ id: 'Integration', description: 'A Kubernetes integration; its token is never shown.' });
const WrittenIntegrationSchema = z
  .object({ ...shownMembers, warnings: z.array(WarningSchema), dry_run: dryRunMember })
  .meta({ id: 'WrittenIntegration', description: 'The integration as it was written.' });
const InClusterIntegrationSchema = z
  .object({ name: z.string(), kind: z.literal('kubernetes'), in_cluster: z.literal(true) })
  .meta({
    id: 'InClusterIntegration',
    description:
      'The integration of `kubernetes.in_cluster` in the configuration of the node. The API cannot change it. It has no ETag.',
  });
const AnyIntegrationSchema = z.union([IntegrationSchema, InClusterIntegrationSchema]);
const IntegrationListSchema = z.object({ items: z.array(AnyIntegrationSchema) }).meta({ id: 'IntegrationList' });

const PATH = '/api/v1/integrations';
const byName = z.object({ name: z.string().min(1, NOT_EMPTY) });
const etagOf = ({ name, revision }: StoredIntegrationView) => `"${name}.${revision}"`;

export const integrationsResource: Resource = (api, { integrations }) => {
  api.get(
    PATH,
    {
      schema: {
        operationId: 'listIntegrations',
        tags: ['integrations'],
        summary: 'Every integration',
        querystring: noQuery,
        response: { 200: IntegrationListSchema, ...errorAnswers(...errorsOf.read, 'store_unavailable') },
      },
    },
    async () => ({ items: (await integrations.list()).map(shown) }),
  );

  api.post(
    PATH,
    {
      schema: {
        operationId: 'createIntegration',
        tags: ['integrations'],
        summary: 'Add an integration',
        description:
          'A dry run returns 200 without the header `Location`. For an admin, the node tries the connection, at most 5 s, and warns if it fails.',
        querystring: dryRunQuery,
        body: IntegrationCreateSchema,
        response: {
          200: WrittenIntegrationSchema,
          201: WrittenIntegrationSchema,
          ...errorAnswers(
            ...errorsOf.body,
            'invalid_header',
            'already_exists',
            'integration_read_only',
            'precondition_failed',
          ),
        },
      },
    },
    async (request, reply) => {
      const { name } = request.body;
      const taken = () => new ApiError('already_exists', `there is an integration named ${name} already`);
      const { before } = await readForWrite(request, () => readWritable(integrations, name), etagOf);
      if (before !== null) throw taken();
      const dryRun = request.query.dry_run === true;
      const written = await integrations.write({
        integration: request.body,
        author: authorOf(request),
        expectedRevision: 0,
        dryRun,
        tryAccess: mayAct(request),
      });
      if (written.kind === 'refused') throw written.code === 'precondition_failed' ? taken() : refused(written);
      if (dryRun)
        return reply.send({ ...shownStored(written.integration), warnings: [...written.warnings], dry_run: true });
      reply.header('etag', etagOf(written.integration)).header('location', `${PATH}/${name}`);
      return reply.code(201).send({ ...shownStored(written.integration), warnings: [...written.warnings] });
    },
  );

  api.get(
    `${PATH}/:name`,
    {
      schema: {
        operationId: 'getIntegration',
        tags: ['integrations'],
        summary: 'One integration',
        params: byName,
        querystring: noQuery,
        response: {
          200: AnyIntegrationSchema,
          304: empty,
          ...errorAnswers(...errorsOf.read, 'invalid_url', 'not_found', 'store_unavailable'),
        },
      },
    },
    async (request, reply) => {
      const integration = await integrations.read(request.params.name);
      if (integration === null) throw new ApiError('not_found', 'there is no such integration');
      if (!integration.in_cluster && isUnchanged(request, reply, etagOf(integration))) return reply.code(304).send();
      return reply.send(shown(integration));
    },
  );

  api.put(
    `${PATH}/:name`,
    {
      schema: {
        operationId: 'putIntegration',
        tags: ['integrations'],
        summary: 'Create or replace an integration',
        description: 'For an admin, the node tries the connection, at most 5 s, and warns if it fails.',
        params: z.object({ name: nameSchema }),
        querystring: dryRunQuery,
        body: IntegrationReplaceSchema,
        response: {
          200: WrittenIntegrationSchema,
          201: WrittenIntegrationSchema,
          ...errorAnswers(
            ...errorsOf.body,
            'invalid_url',
            'invalid_header',
            'integration_read_only',
            'precondition_failed',
          ),
        },
      },
    },
    async (request, reply) => {
      const { name } = request.params;
      if (request.body.name !== undefined && request.body.name !== name) {
        throw new ApiError('invalid_request', undefined, [
          { pointer: '/name', code: 'invalid_value', message: `Must be ${JSON.stringify(name)}, as in the path.` },
        ]);
      }
      const { expected } = await readForWrite(request, () => readWritable(integrations, name), etagOf);
      const dryRun = request.query.dry_run === true;
      const written = await integrations.write({
        integration: { ...request.body, name },
        author: authorOf(request),
        ...expected,
        dryRun,
        tryAccess: mayAct(request),
      });
      if (written.kind === 'refused') throw refused(written);
      if (dryRun)
        return reply.send({ ...shownStored(written.integration), warnings: [...written.warnings], dry_run: true });
      reply.header('etag', etagOf(written.integration));
      if (written.created) reply.code(201).header('location', `${PATH}/${name}`);
      return reply.send({ ...shownStored(written.integration), warnings: [...written.warnings] });
    },
  );

  api.delete(
    `${PATH}/:name`,
    {
      schema: {
        operationId: 'deleteIntegration',
        tags: ['integrations'],
        summary: 'Delete an integration that the active policy does not use',
        params: byName,
        querystring: dryRunQuery,
        response: {
          204: empty,
          ...errorAnswers(
            ...errorsOf.write,
            'invalid_url',
            'invalid_header',
            'not_found',
            'integration_in_use',
            'integration_read_only',
            'change_pending',
            'precondition_failed',
          ),
        },
      },
    },
    async (request, reply) => {
      const { name } = request.params;
      const readPresent = async () => {
        const found = await readWritable(integrations, name);
        if (found === null) throw new ApiError('not_found', 'there is no such integration');
        return found;
      };
      const { expected } = await readForWrite(request, readPresent, etagOf);
      const removed = await integrations.remove({ name, ...expected, dryRun: request.query.dry_run === true });
      if (removed.kind === 'refused') throw refused(removed);
      return reply.code(204).send();
    },
  );
};

/**
 * Returns the stored integration; null if there is none. Throws an error for the integration (a Kubernetes
 * API server) of the configuration, which cannot be written.
 */
async function readWritable(
  integrations: Management['integrations'],
  name: string,
): Promise<StoredIntegrationView | null> {
  const found = await integrations.read(name);
  if (found?.in_cluster !== true) return found;
  const detail = `the integration ${name} is defined by kubernetes.in_cluster of the configuration`;
  throw new ApiError('integration_read_only', detail);
}

function shown(integration: IntegrationView): z.infer<typeof AnyIntegrationSchema> {
  if (!integration.in_cluster) return shownStored(integration);
  return { name: integration.name, kind: integration.kind, in_cluster: true };
}

/**
 * Copies the members of an integration (a Kubernetes API server) one by one. A spread would also copy secret
 * members, which must never be in a response.
 */
function shownStored(integration: StoredIntegrationView): z.infer<typeof IntegrationSchema> {
  const { name, kind, in_cluster, api_server_url, ca_cert_pem, revision, created_at, updated_at, updated_by } =
    integration;
  return { name, kind, in_cluster, api_server_url, ca_cert_pem, revision, created_at, updated_at, updated_by };
}

function isServerUrl(text: string): boolean {
  if (!URL.canParse(text) || /\s/.test(text)) return false;
  const { protocol, username, password, search, hash } = new URL(text);
  return protocol === 'https:' && username + password + search + hash === '' && !/[?#@]/.test(text);
}

function isCertificates(pem: string): boolean {
  const blocks = pem.match(PEM_BLOCK) ?? [];
  return blocks.length > 0 && pem.replace(PEM_BLOCK, '').trim() === '' && blocks.every(isCertificate);
}

function isCertificate(block: string): boolean {
  try {
    return new X509Certificate(block).raw.length > 0;
  } catch {
    return false;
  }
}
