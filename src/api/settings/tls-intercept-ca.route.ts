import { z } from 'zod';
import { authorOf } from '#api/access/authentication.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError } from '#api/errors/errors.js';
import { empty, errorAnswers, errorsOf, instant, WarningSchema } from '#api/openapi/answer.schema.js';
import { isUnchanged, readForWrite } from '#api/requests/preconditions.js';
import { dryRunMember, dryRunQuery, noQuery } from '#api/requests/query-parameters.js';
import { CA_ABSENT } from '#contracts/service-plane/no-intercept-ca.js';
import type { InterceptCaView } from '#service-plane/ca/intercept-ca-setting.js';

const PEM = '-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n';
const shownMembers = {
  subject: z.string(),
  fingerprint_sha256: z.string().describe('SHA-256 of the certificate in DER: 64 lower-case hex digits.'),
  not_before: instant,
  not_after: instant,
  cert_pem: z.string().describe('The certificate of the CA, without the certificates of its issuers.'),
  revision: z.int().min(1),
  updated_at: instant,
  updated_by: z.string(),
};
const CaSchema = z.object(shownMembers).meta({
  id: 'TlsInterceptCa',
  description: 'The CA that signs certificates for intercepted connections. The API never returns its key.',
});
const WrittenCaSchema = z
  .object({ ...shownMembers, warnings: z.array(WarningSchema), dry_run: dryRunMember })
  .meta({ id: 'WrittenTlsInterceptCa', description: 'The intercept CA as it was written.' });
const CaWriteSchema = z
  .strictObject({
    cert_pem: z
      .string()
      .max(65_536)
      .describe('The certificate of the CA, followed by the certificates of its issuers in order.'),
    key_pem: z
      .string()
      .max(16_384)
      .describe('The private key of the CA, not encrypted: RSA or EC.')
      .meta({ writeOnly: true }),
  })
  .meta({
    id: 'TlsInterceptCaWrite',
    examples: [{ cert_pem: PEM, key_pem: '-----BEGIN PRIVATE KEY-----\n…\n-----END PRIVATE KEY-----\n' }],
  });

const PATH = '/api/v1/settings/tls-intercept-ca';
const FILE_NAME = 'weir-intercept-ca.pem';
const tags = ['settings'];
const querystring = noQuery;
const etagOf = ({ revision }: InterceptCaView) => `"tls-intercept-ca.${revision}"`;

export const tlsInterceptCaResource: Resource = (api, { interceptCa }) => {
  const readPresent = async () => {
    const ca = await interceptCa.read();
    if (ca === null) throw new ApiError('not_found', CA_ABSENT);
    return ca;
  };

  api.get(
    PATH,
    {
      schema: {
        operationId: 'getTlsInterceptCa',
        tags,
        summary: 'The intercept CA',
        querystring,
        response: {
          200: CaSchema,
          304: empty,
          ...errorAnswers(...errorsOf.read, 'not_found', 'store_unavailable'),
        },
      },
    },
    async (request, reply) => {
      const ca = await readPresent();
      if (isUnchanged(request, reply, etagOf(ca))) return reply.code(304).send();
      return reply.send(shown(ca));
    },
  );

  api.put(
    PATH,
    {
      schema: {
        operationId: 'putTlsInterceptCa',
        tags,
        summary: 'Install an intercept CA',
        querystring: dryRunQuery,
        body: CaWriteSchema,
        response: {
          200: WrittenCaSchema,
          ...errorAnswers(...errorsOf.body, 'invalid_ca', 'invalid_header', 'precondition_failed'),
        },
      },
    },
    async (request, reply) => {
      const { expected } = await readForWrite(request, () => interceptCa.read(), etagOf);
      const written = await interceptCa.put({
        dryRun: request.query.dry_run === true,
        certPem: request.body.cert_pem,
        keyPem: request.body.key_pem,
        author: authorOf(request),
        ...expected,
      });
      if (written.kind === 'refused') throw refused(written);
      const answer = { ...shown(written.ca), warnings: [...written.warnings] };
      if (request.query.dry_run === true) return reply.send({ ...answer, dry_run: true });
      return reply.header('etag', etagOf(written.ca)).send(answer);
    },
  );

  api.delete(
    PATH,
    {
      schema: {
        operationId: 'deleteTlsInterceptCa',
        tags,
        summary: 'Remove the intercept CA; connections that a rule intercepts then fail',
        querystring: dryRunQuery,
        response: {
          204: empty,
          ...errorAnswers(...errorsOf.write, 'invalid_header', 'not_found', 'precondition_failed'),
        },
      },
    },
    async (request, reply) => {
      const { expected } = await readForWrite(request, readPresent, etagOf);
      if (request.query.dry_run === true) return reply.code(204).send();
      const removed = await interceptCa.remove(expected);
      if (removed.kind === 'refused') throw refused(removed);
      return reply.code(204).send();
    },
  );

  api.post(
    `${PATH}/generate`,
    {
      schema: {
        operationId: 'generateTlsInterceptCa',
        tags,
        summary: 'Generate a new intercept CA, which replaces the current one',
        description: 'A dry run checks the preconditions, generates nothing, and returns 204.',
        querystring: dryRunQuery,
        response: {
          201: CaSchema,
          204: empty,
          ...errorAnswers(...errorsOf.write, 'invalid_header', 'precondition_failed'),
        },
      },
    },
    async (request, reply) => {
      const { expected } = await readForWrite(request, () => interceptCa.read(), etagOf);
      if (request.query.dry_run === true) return reply.code(204).send();
      const made = await interceptCa.generate({
        author: authorOf(request),
        ...expected,
      });
      if (made.kind === 'refused') throw refused(made);
      reply.header('etag', etagOf(made.ca)).header('location', PATH);
      return reply.code(201).send(shown(made.ca));
    },
  );

  api.get(
    `${PATH}/cert`,
    {
      schema: {
        operationId: 'getTlsInterceptCaCertificate',
        tags,
        summary: 'Get the certificate of the intercept CA, to install on clients',
        querystring,
        response: {
          200: { description: 'PEM.', content: { 'application/x-pem-file': { schema: z.string() } } },
          304: empty,
          ...errorAnswers(...errorsOf.read, 'not_found', 'store_unavailable'),
        },
      },
    },
    async (request, reply) => {
      const ca = await readPresent();
      if (isUnchanged(request, reply, etagOf(ca))) return reply.code(304).send();
      return reply
        .type('application/x-pem-file')
        .header('content-disposition', `attachment; filename="${FILE_NAME}"`)
        .send(ca.cert_pem);
    },
  );
};

/**
 * Copies the members of the CA one by one. A spread would also copy secret members, which must never be in a
 * response.
 */
function shown(ca: InterceptCaView): z.infer<typeof CaSchema> {
  const { subject, fingerprint_sha256, not_before, not_after, cert_pem, revision, updated_at, updated_by } = ca;
  return { subject, fingerprint_sha256, not_before, not_after, cert_pem, revision, updated_at, updated_by };
}
