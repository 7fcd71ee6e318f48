import type { FastifyRequest } from 'fastify';
import { z } from 'zod';

/** A query parameter that is on or off; there without a value it is on. */
export const flag = z
  .enum(['', 'true', 'false'], { error: 'Must be true or false.' })
  .transform((word) => word !== 'false')
  .meta({ examples: ['true'] });

export const oneOrMore = z
  .union([z.string(), z.array(z.string())])
  .transform((value) => (typeof value === 'string' ? [value] : value));

/** Texts that are each read; one that `read` knows no value for is refused with `fault`. */
export const listOf = <T>(read: (text: string) => T | undefined, fault: string) =>
  oneOrMore
    .refine((texts) => texts.every((text) => read(text) !== undefined), { error: fault })
    .transform((texts) => texts.map((text) => read(text) as T))
    .optional();

/** For parameters that are tested on each of very many things. */
export const few = (values: readonly unknown[] | undefined): boolean => (values?.length ?? 0) <= 64;
export const FEW = { error: 'Must be given at most 64 times.' };

/** How many items a page has at most. */
export const pageLimit = (usual: number, highest: number) => {
  const error = `Must be a whole number from 1 to ${highest}.`;
  return z.coerce.number(error).int(error).min(1, error).max(highest, error).default(usual);
};

/** Parameters are refused where none are known: a misspelt `dry_run` must not write. */
export const noQuery = z.strictObject({});

/** Of every write (D7). */
export const dryRunQuery = z.strictObject({
  dry_run: flag.optional().describe('Do everything up to the commit, and change nothing. Readers may ask for it too.'),
});
/**
 * Whether a request asks for a dry run, by the words that `flag` reads, before its parameters are validated. A path that takes no
 * dry run refuses the parameter.
 */
export const isDryRun = ({ query }: FastifyRequest): boolean => {
  const { dry_run: asked } = (query ?? {}) as { readonly dry_run?: unknown };
  return asked === '' || asked === 'true';
};
/** A member of the answer to a dry run. */
export const dryRunMember = z.literal(true).optional().describe('Present in the answer to a dry run.');

/** Of a part of the path. */
export const NOT_EMPTY = 'Must not be empty; a path of a collection has no slash at its end.';
