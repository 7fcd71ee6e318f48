import { z } from 'zod';
import { CliError, RefusedError } from '#cli/errors/command-error.js';

/** This file defines the integrations as the API returns them, and the errors of their commands. */

export const PATH = '/api/v1/integrations';

const storedSchema = z.object({
  name: z.string(),
  kind: z.string(),
  in_cluster: z.literal(false),
  api_server_url: z.string(),
  ca_cert_pem: z.string(),
  revision: z.number(),
  created_at: z.string(),
  updated_at: z.string(),
  updated_by: z.string(),
});
const inClusterSchema = z.object({ name: z.string(), kind: z.string(), in_cluster: z.literal(true) });

const integrationSchema = z.discriminatedUnion('in_cluster', [storedSchema, inClusterSchema]);
export type Integration = z.infer<typeof integrationSchema>;
export const listSchema = z.object({ items: z.array(integrationSchema) });
export const writtenSchema = storedSchema.extend({
  warnings: z.array(z.object({ code: z.string(), message: z.string() })).default([]),
});

/**
 * Throws the refusal of a request about an integration (a Kubernetes API server), with advice about the
 * command.
 */
export function throwWithAdvice(name: string, refused: unknown): never {
  const code = refused instanceof RefusedError ? refused.code : undefined;
  switch (code) {
    case 'not_found':
      throw new CliError(`there is no integration named ${name}`, {
        cause: refused,
        fix: '`weir integration list` shows the integrations; `weir integration add` stores one',
        code,
      });
    case 'already_exists':
      throw new CliError(`there is an integration named ${name} already`, {
        cause: refused,
        fix: 'give --replace, or another name',
        code,
      });
    default:
      throw refused;
  }
}
