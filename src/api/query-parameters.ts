import type { FastifyRequest } from 'fastify';
import { z } from 'zod';

/** A boolean query parameter. Without a value it means true. */
export const flag = z
  .enum(['', 'true', 'false'], { error: 'Must be true or false.' })
  .transform((word) => word !== 'false')
  .meta({ examples: ['true'] });

export const oneOrMore = z
  .union([z.string(), z.array(z.string())])
  .transform((value) => (typeof value === 'string' ? [value] : value));

/**
 * A list of texts, each converted by `read`. If `read` returns undefined, the parameter is refused with
 * `fault`.
 */
export const listOf = <T>(read: (text: string) => T | undefined, fault: string) =>
  oneOrMore
    .refine((texts) => texts.every((text) => read(text) !== undefined), { error: fault })
    .transform((texts) => texts.map((text) => read(text) as T))
    .optional();

/** For lists that are compared with a very large number of items. */
export const few = (values: readonly unknown[] | undefined): boolean => (values?.length ?? 0) <= 64;
export const FEW = { error: 'Must be given at most 64 times.' };

/** The maximum number of items of a page. */
export const pageLimit = (usual: number, highest: number) => {
  const error = `Must be a whole number from 1 to ${highest}.`;
  return z.coerce.number(error).int(error).min(1, error).max(highest, error).default(usual);
};

/** For routes without parameters. Unknown ones are refused, because a misspelt `dry_run` must not write. */
export const noQuery = z.strictObject({});

/** Query parameters of every write (D7). */
export const dryRunQuery = z.strictObject({
  dry_run: flag
    .optional()
    .describe('Do everything up to the commit, and change nothing. The role `readonly` may use it too.'),
});
/**
 * Whether a request asks for a dry run, as `flag` reads it. It runs before the parameters are validated; a
 * path without dry run refuses the parameter there.
 */
export const isDryRun = ({ query }: FastifyRequest): boolean => {
  const { dry_run: asked } = (query ?? {}) as { readonly dry_run?: unknown };
  return asked === '' || asked === 'true';
};
/** A member of the response to a dry run. */
export const dryRunMember = z.literal(true).optional().describe('Present in the answer to a dry run.');

/** The message for an empty path segment. */
export const NOT_EMPTY = 'Must not be empty; a path of a collection has no slash at its end.';
