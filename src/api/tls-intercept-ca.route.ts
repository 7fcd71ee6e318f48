import { z } from 'zod';
import { empty, errorAnswers, errorsOf, instant } from './answer.schema.js';
import type { Resource } from './api.js';
import { ApiError } from './errors.js';
import { noQuery } from './query.js';

const CaSchema = z
  .object({
    subject: z.string(),
    fingerprint_sha256: z.string(),
    not_before: instant,
    not_after: instant,
  })
  .meta({ id: 'TlsInterceptCa', description: 'The CA that signs intercepted connections. Its key is never shown.' });
const CaWriteSchema = z
  .strictObject({ cert_pem: z.string(), key_pem: z.string().meta({ writeOnly: true }) })
  .meta({ id: 'TlsInterceptCaWrite' });

const PATH = '/api/v1/settings/tls-intercept-ca';

export const tlsInterceptCaResource: Resource = (api) => {
  const absent = async (): Promise<never> => {
    throw new ApiError('feature_unavailable', 'the service plane is not running on this node');
  };
  const tags = ['settings'];
  const querystring = noQuery;

  api.get(
    PATH,
    {
      schema: {
        operationId: 'getTlsInterceptCa',
        tags,
        summary: 'The intercept CA',
        querystring,
        response: { 200: CaSchema, ...errorAnswers(...errorsOf.read, 'not_found', 'feature_unavailable') },
      },
    },
    absent,
  );
  api.put(
    PATH,
    {
      schema: {
        operationId: 'putTlsInterceptCa',
        tags,
        summary: 'Install an intercept CA',
        querystring,
        body: CaWriteSchema,
        response: { 200: CaSchema, ...errorAnswers(...errorsOf.body, 'feature_unavailable') },
      },
    },
    absent,
  );
  api.delete(
    PATH,
    {
      schema: {
        operationId: 'deleteTlsInterceptCa',
        tags,
        summary: 'Remove the intercept CA',
        querystring,
        response: { 204: empty, ...errorAnswers(...errorsOf.write, 'not_found', 'feature_unavailable') },
      },
    },
    absent,
  );
  api.post(
    `${PATH}/generate`,
    {
      schema: {
        operationId: 'generateTlsInterceptCa',
        tags,
        summary: 'Make a new intercept CA',
        querystring,
        response: { 201: CaSchema, ...errorAnswers(...errorsOf.write, 'feature_unavailable') },
      },
    },
    absent,
  );
  api.get(
    `${PATH}/cert`,
    {
      schema: {
        operationId: 'getTlsInterceptCaCertificate',
        tags,
        summary: 'The certificate of the intercept CA, to install on clients',
        querystring,
        response: {
          200: { description: 'PEM.', content: { 'application/x-pem-file': { schema: z.string() } } },
          ...errorAnswers(...errorsOf.read, 'not_found', 'feature_unavailable'),
        },
      },
    },
    absent,
  );
};
