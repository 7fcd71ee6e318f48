import { z } from 'zod';

/** A query parameter that is on or off; there without a value it is on. */
export const flag = z
  .enum(['', 'true', 'false'], { error: 'Must be true or false.' })
  .transform((word) => word !== 'false')
  .meta({ examples: ['true'] });

export const oneOrMore = z
  .union([z.string(), z.array(z.string())])
  .transform((value) => (typeof value === 'string' ? [value] : value));

/** Parameters are refused where none are known: a misspelt `dry_run` must not write. */
export const noQuery = z.strictObject({});

/** Of a part of the path. */
export const NOT_EMPTY = 'Must not be empty; a path of a collection has no slash at its end.';
