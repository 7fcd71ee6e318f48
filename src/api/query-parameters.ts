import type { FastifyRequest } from 'fastify';
import { z } from 'zod';

/** A boolean query parameter. A parameter without a value, as in `?dry_run`, is true. */
export const flag = z
  .enum(['', 'true', 'false'], { error: 'Must be true or false.' })
  .transform((word) => word !== 'false')
  .meta({ examples: ['true'] });

export const oneOrMore = z
  .union([z.string(), z.array(z.string())])
  .transform((value) => (typeof value === 'string' ? [value] : value));

/**
 * A query parameter that may be repeated. `read` converts each text. If `read` returns undefined for a text,
 * the request is refused with the message `fault`.
 */
export const listOf = <T>(read: (text: string) => T | undefined, fault: string) =>
  oneOrMore
    .refine((texts) => texts.every((text) => read(text) !== undefined), { error: fault })
    .transform((texts) => texts.map((text) => read(text) as T))
    .optional();

/**
 * Limits a repeated query parameter to 64 values. Used for filters whose values the node compares with very
 * many findings or wiretap events.
 */
export const few = (values: readonly unknown[] | undefined): boolean => (values?.length ?? 0) <= 64;
export const FEW = { error: 'Must be given at most 64 times.' };

/**
 * The query parameter `limit`: the maximum number of items in a page. `usual` is its default, and `highest`
 * its largest value.
 */
export const pageLimit = (usual: number, highest: number) => {
  const error = `Must be a whole number from 1 to ${highest}.`;
  return z.coerce.number(error).int(error).min(1, error).max(highest, error).default(usual);
};

/**
 * The query schema of routes without query parameters. The schema refuses unknown parameters: a misspelt
 * `dry_run` must not cause a real write.
 */
export const noQuery = z.strictObject({});

/** The query parameter `dry_run`, which every write has (D7). */
export const dryRunQuery = z.strictObject({
  dry_run: flag
    .optional()
    .describe('Performs all steps before the commit, and changes nothing. The role `readonly` may use it too.'),
});
/**
 * Returns whether a request asks for a dry run. The guard calls this function before the query is validated.
 * A route without dry run refuses the parameter later, at validation.
 */
export const isDryRun = ({ query }: FastifyRequest): boolean => {
  const { dry_run: asked } = (query ?? {}) as { readonly dry_run?: unknown };
  return asked === '' || asked === 'true';
};
/** The member `dry_run` in the response to a dry run. */
export const dryRunMember = z.literal(true).optional().describe('Present in the response to a dry run.');

/** The error message for an empty segment in a request path. */
export const NOT_EMPTY = 'Must not be empty; the path of a collection does not end with a slash.';
