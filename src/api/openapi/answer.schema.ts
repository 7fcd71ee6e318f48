import { z } from 'zod';
import { AssertionFailureSchema } from '#api/analysis/assertion.schema.js';
import { ERRORS, type ErrorCode } from '#api/errors/error-table.js';
import { typeOf } from '#api/errors/errors.js';

/** The schema of every error response: problem details (RFC 9457) with the additional members of D28. */
const ProblemSchema = z
  .object({
    type: z.string().describe('`urn:weir:error:` and the code of the error, see docs/errors.md.'),
    title: z.string(),
    status: z.int().min(400).max(599),
    detail: z.string().describe('The error of this request.'),
    error: z.string().describe('One plain sentence.'),
    problems: z
      .array(
        z.object({
          pointer: z.string().describe('An RFC 6901 JSON pointer into the body, or `?name` for a query parameter.'),
          code: z.string(),
          message: z.string(),
        }),
      )
      .optional()
      .describe('All problems that were found.'),
    assertions: z
      .array(AssertionFailureSchema)
      .optional()
      .describe('With `assertion_failed`: the assertions that refuse the write.'),
  })
  .meta({
    id: 'Problem',
    description: 'Problem details (RFC 9457) with one plain sentence in `error`.',
    examples: [
      {
        type: typeOf('name_taken'),
        title: 'Name taken',
        status: 409,
        detail: 'another policy is named "office"',
        error: 'another policy is named "office"',
      },
    ],
  });

export const WarningSchema = z.object({ pointer: z.string(), code: z.string(), message: z.string() }).meta({
  id: 'Warning',
  description: 'A valid part of the policy that is probably a mistake. A warning never blocks a write.',
});

export const ProofSchema = z
  .object({
    classes: z
      .int()
      .min(1)
      .nullable()
      .describe('The number of packet classes that the policy distinguishes; null if there are too many to count.'),
    checked: z
      .int()
      .min(0)
      .describe(
        'The number of packets that the datapath evaluated with the new tables; each packet got the verdict of the policy.',
      ),
    complete: z.boolean().describe('Whether these packets include one of every class.'),
  })
  .nullable()
  .meta({
    id: 'Proof',
    description: 'How the compiled policy was checked before its activation; null if nothing was activated.',
  });

/** The schema of a time in ISO 8601, UTC. */
export const instant = z.string().meta({ format: 'date-time' });
export const empty = z.undefined().describe('No body.');

const EVERYWHERE: readonly ErrorCode[] = [
  'malformed_request',
  'invalid_query',
  'host_refused',
  'request_timeout',
  'headers_too_large',
  'internal',
];
const GUARDED: readonly ErrorCode[] = [
  'token_in_query',
  'unauthenticated',
  'invalid_token',
  'too_many_failed_logins',
  'rate_limited',
  'origin_refused',
];
const READ: readonly ErrorCode[] = ['invalid_header', 'generation_not_reached'];
const WRITE: readonly ErrorCode[] = [
  'forbidden',
  'draining',
  'write_conflict',
  'member_refused',
  'store_unavailable',
  'store_full',
  'outcome_unknown',
];
const BODY: readonly ErrorCode[] = ['invalid_body', 'invalid_request', 'body_too_large', 'unsupported_media_type'];

const SESSION: readonly ErrorCode[] = ['token_in_query', 'rate_limited', 'origin_refused'];

export const errorsOf = {
  public: EVERYWHERE,
  session: [...EVERYWHERE, ...SESSION],
  signIn: [...EVERYWHERE, ...GUARDED, ...BODY],
  read: [...EVERYWHERE, ...GUARDED, ...READ],
  write: [...EVERYWHERE, ...GUARDED, ...WRITE],
  body: [...EVERYWHERE, ...GUARDED, ...WRITE, ...BODY],
} as const;

type ProblemAnswer = {
  readonly description: string;
  readonly content: { readonly 'application/problem+json': { readonly schema: typeof ProblemSchema } };
};

/**
 * Returns the error responses of a route for its `response` schema. There is one response per HTTP status;
 * its description lists the error codes.
 */
export function errorAnswers(...codes: readonly ErrorCode[]): Record<number, ProblemAnswer> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of new Set(codes)) {
    const { status } = ERRORS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, listed]) => [
      status,
      {
        description: listed.map((code) => `\`${code}\`: ${ERRORS[code].when}`).join('\n\n'),
        content: { 'application/problem+json': { schema: ProblemSchema } },
      },
    ]),
  );
}
