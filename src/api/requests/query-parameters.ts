import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { parseCidr } from '#addresses/ip-address.js';
import { durationMs } from '#contracts/duration.js';
import { wholeNumberOf } from '#contracts/whole-number.js';
import { isPrintable } from '#policy/check/validation/validate.js';
import { parseProtocol } from '#policy/model/keywords.js';
import { parsePorts } from '#policy/model/parse-ports.js';

/**
 * A boolean query parameter. A parameter without `=`, as in `?dry_run`, is true. An empty value, as in
 * `?dry_run=`, is refused.
 */
export const flag = z
  .literal([true, 'true', 'false'], { error: 'Must be true or false.' })
  .transform((word) => word !== 'false')
  .meta({ type: 'boolean', enum: [true, false], examples: [true] });

const texts = z
  .union([z.string(), z.array(z.string())])
  .transform((value) => (typeof value === 'string' ? [value] : value));

/** A query parameter that accepts any text and may be repeated. */
export const oneOrMore = texts.refine((all) => !all.includes(''), { error: 'Must not be empty.' });

/**
 * A query parameter that may be repeated. `read` converts each text. If `read` returns undefined for a text,
 * the request is refused with the message `fault`.
 */
export const listOf = <T>(read: (text: string) => T | undefined, fault: string) =>
  texts
    .refine((all) => all.every((text) => text !== '' && read(text) !== undefined), { error: fault })
    .transform((all) => all.map((text) => read(text) as T))
    .optional();

/** A query parameter whose value is one of the given words; it may be repeated. */
export const wordsOf = <W extends string>(words: readonly W[]) =>
  listOf((text) => words.find((word) => word === text), `Must be one of ${words.join(', ')}.`);

export const networks = listOf(
  (text) => parseCidr(text)?.prefix,
  'Must be an IP address, or a CIDR such as 10.0.0.0/8 or 2001:db8::/32.',
);

/** A query parameter whose values are ports or port ranges; it may be repeated. */
export const ports = listOf((text) => {
  const parsed = parsePorts(text);
  return 'range' in parsed ? parsed.range : undefined;
}, 'Must be a port, or a range such as 8000-8100.');

export const protocols = listOf((text) => {
  const protocol = parseProtocol(wholeNumberOf(text) ?? text);
  return protocol === 'any' ? undefined : protocol;
}, 'Must be tcp, udp, icmp, or a number from 0 to 255.');

const HOSTNAME = /^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$/;

/** A query parameter with names, or `*.` before a name; it may be repeated. */
export const hostnames = listOf((text) => {
  const name = text.toLowerCase().replace(/\.$/, '');
  return HOSTNAME.test(name) ? name : undefined;
}, 'Must be a name, or `*.` before a name.');

/** A query parameter with a whole number. This function reads all numbers in queries. */
export const wholeNumber = (lowest: number, highest = Number.MAX_SAFE_INTEGER) => {
  const error =
    highest === Number.MAX_SAFE_INTEGER
      ? `Must be a whole number${lowest === 0 ? '' : ` from ${lowest}`} in decimal digits.`
      : `Must be a whole number from ${lowest} to ${highest}.`;
  return z
    .string()
    .transform((text) => wholeNumberOf(text) ?? Number.NaN)
    .refine((number) => number >= lowest && number <= highest, { error })
    .meta({ type: 'integer', minimum: lowest, maximum: highest });
};

/** A query parameter with a duration, in milliseconds. `read` converts the text to milliseconds. */
export const duration = (lowestMs: number, highestMs: number, error: string, read = durationMs) =>
  z
    .string()
    .transform((text) => read(text) ?? Number.NaN)
    .refine((ms) => ms >= lowestMs && ms <= highestMs, { error });

/**
 * Limits a repeated query parameter to 64 values. Used for filters whose values the node compares with very
 * many findings or wiretap events.
 */
export const few = (values: readonly unknown[] | undefined): boolean => (values?.length ?? 0) <= 64;
export const FEW = { error: 'Must be given at most 64 times.' };

const COMMENT_LENGTH = 500;

/** The query parameter `comment`: why a policy is written, for its history. */
export const commentQuery = z
  .string()
  .refine((text) => text.trim() !== '' && [...text].length <= COMMENT_LENGTH && isPrintable(text), {
    error: `Must be 1 to ${COMMENT_LENGTH} printable characters on one line.`,
  })
  .optional()
  .describe(`Why the policy is written, for its history: 1 to ${COMMENT_LENGTH} printable characters.`)
  .meta({ examples: ['CHG-1042: printers of the second floor'] });

/** The query parameter `override`: ids of assertions that a policy write may break. */
export const overrideQuery = texts
  .transform((all) => all.flatMap((text) => text.split(',')))
  .refine((ids) => !ids.includes(''), { error: 'Must be ids of assertions, separated by commas.' })
  .optional()
  .describe(
    'Ids of assertions that the write may break, separated by commas or in several parameters. The history of the policy records those that it breaks.',
  )
  .meta({ examples: ['no-ssh'] });

/** The query parameter `limit`. `usual` is its default, and `highest` its largest value. */
export const pageLimit = (usual: number, highest: number) => wholeNumber(1, highest).default(usual);

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
 * Returns whether a request asks for a dry run. The authorization hook calls this function before the query
 * is validated. Routes without dry runs refuse the parameter later, at validation.
 */
export const isDryRun = ({ query }: FastifyRequest): boolean => {
  const { dry_run: asked } = (query ?? {}) as { readonly dry_run?: unknown };
  return asked === true || asked === 'true';
};
export const dryRunMember = z.literal(true).optional().describe('Present in the response to a dry run.');

export const NOT_EMPTY = 'Must not be empty; the path of a collection does not end with a slash.';
