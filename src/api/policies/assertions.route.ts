import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { authorOf } from '#api/access/authentication.js';
import { assertionResultMembers } from '#api/analysis/assertion.schema.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError } from '#api/errors/errors.js';
import { empty, errorAnswers, errorsOf, instant } from '#api/openapi/answer.schema.js';
import { preconditionsOf, readForWrite } from '#api/requests/preconditions.js';
import { dryRunMember, dryRunQuery, NOT_EMPTY, noQuery } from '#api/requests/query-parameters.js';
import type { Assertion, AssertionResult } from '#contracts/analysis/assertion.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import type { AssertionWrite } from '#policies/assertions.js';
import { assertionSchema, assertionsSchema, pathAssertionSchema } from '#policy/document/assertion-schema.js';
import type { AssertionList } from '#store/store-types.js';

const example = { id: 'no-ssh', never: { from: ['10.1.0.0/16'], to: ['10.9.0.0/24'], ports: [22] } };
const shownMembers = { id: z.string(), assertion: assertionSchema, ...assertionResultMembers };
const shownExample = {
  id: example.id,
  assertion: example,
  result: 'holds',
  message: 'the assertion holds',
  regions: [],
  regions_omitted: 0,
};
const ShownAssertionSchema = z.object({ ...shownMembers, dry_run: dryRunMember }).meta({
  id: 'ShownAssertion',
  description: 'An assertion, and whether it holds for the policy in force.',
  examples: [shownExample],
});
const ListSchema = z
  .object({
    items: z.array(z.object(shownMembers)),
    revision: z.int().min(0).describe('The number of writes of the list; 0 before the first write.'),
    updated_at: instant.nullable(),
    updated_by: z.string().nullable(),
    dry_run: dryRunMember,
  })
  .meta({
    id: 'AssertionList',
    description: 'The assertions, and whether each holds for the policy in force.',
    examples: [{ items: [shownExample], revision: 1, updated_at: '2026-02-01T08:30:00.000Z', updated_by: 'admin' }],
  });
const ListWriteSchema = assertionsSchema.meta({ id: 'AssertionListWrite', examples: [{ assertions: [example] }] });
const AssertionWriteSchema = pathAssertionSchema.meta({
  id: 'AssertionWrite',
  description: 'An assertion. Its `id` is the id in the path, or absent.',
  examples: [{ never: example.never }],
});

const PATH = '/api/v1/assertions';
const byId = z.object({ id: z.string().min(1, NOT_EMPTY).describe('Id of the assertion, percent-encoded.') });
const RESULTS =
  'The results are for the policy in force. Results that are not known after 2 s are `unknown`; the next request can have them.';
const ETAG = 'All assertions have one revision and one ETag.';
const WRITE_ERRORS = [...errorsOf.body, 'invalid_header', 'precondition_failed'] as const;

const etagOf = ({ revision }: Pick<AssertionList, 'revision'>): string => `"assertions.${revision}"`;

/**
 * The routes for assertions: statements about flows that must be true after each write of the policy in
 * force.
 */
export const assertionsResource: Resource = (api, { assertions }) => {
  /** Writes the list of assertions that `change` returns, if the preconditions of the request (ETag) hold. */
  const write = async (request: FastifyRequest, dryRun: boolean, change: AssertionWrite['change'], only?: string) => {
    // `If-None-Match: *` is a condition for the assertion in the path, not for the whole list: `change`
    // checks it.
    const { expected } = isCreation(request, only)
      ? { expected: {} }
      : await readForWrite(request, () => assertions.readRevision(), etagOf);
    const own = only === undefined ? {} : { only };
    const written = await assertions.write({ change, ...own, author: authorOf(request), ...expected, dryRun });
    if (written.kind === 'refused') throw refused(written);
    return written.list;
  };
  const shownList = async (list: AssertionList, request: FastifyRequest) => {
    const results = await assertions.results(list, authorOf(request));
    const { revision, updated_at, updated_by } = list;
    return {
      items: list.assertions.map((assertion, at) => shown(assertion, results[at])),
      revision,
      updated_at,
      updated_by,
    };
  };
  const shownOne = async (list: AssertionList, id: string, request: FastifyRequest) => {
    const at = list.assertions.findIndex((assertion) => assertion.id === id);
    const assertion = list.assertions[at];
    if (assertion === undefined) throw new ApiError('not_found', `there is no assertion ${id}`);
    return shown(assertion, (await assertions.results(list, authorOf(request)))[at]);
  };

  api.get(
    PATH,
    {
      schema: {
        operationId: 'listAssertions',
        tags: ['assertions'],
        summary: 'List the assertions, and whether they hold',
        description: `${RESULTS} ${ETAG}`,
        querystring: noQuery,
        response: { 200: ListSchema, ...errorAnswers(...errorsOf.read, 'store_unavailable') },
      },
    },
    async (request, reply) => {
      const list = await assertions.read();
      return reply.header('etag', etagOf(list)).send(await shownList(list, request));
    },
  );

  api.put(
    PATH,
    {
      schema: {
        operationId: 'putAssertions',
        tags: ['assertions'],
        summary: 'Replace all assertions',
        description: `An assertion that does not hold now is stored too. ${RESULTS} ${ETAG}`,
        querystring: dryRunQuery,
        body: ListWriteSchema,
        response: { 200: ListSchema, ...errorAnswers(...WRITE_ERRORS) },
      },
    },
    async (request, reply) => {
      const dryRun = request.query.dry_run === true;
      const list = await write(request, dryRun, () => request.body.assertions as readonly Assertion[]);
      const shown = await shownList(list, request);
      if (dryRun) return reply.send({ ...shown, dry_run: true });
      return reply.header('etag', etagOf(list)).send(shown);
    },
  );

  api.get(
    `${PATH}/:id`,
    {
      schema: {
        operationId: 'getAssertion',
        tags: ['assertions'],
        summary: 'Get one assertion, and whether it holds',
        description: `${RESULTS} ${ETAG}`,
        params: byId,
        querystring: noQuery,
        response: {
          200: ShownAssertionSchema,
          ...errorAnswers(...errorsOf.read, 'invalid_url', 'not_found', 'store_unavailable'),
        },
      },
    },
    async (request, reply) => {
      const list = await assertions.read();
      const one = await shownOne(list, request.params.id, request);
      return reply.header('etag', etagOf(list)).send(one);
    },
  );

  api.put(
    `${PATH}/:id`,
    {
      schema: {
        operationId: 'putAssertion',
        tags: ['assertions'],
        summary: 'Replace one assertion at its place in the list, or append it',
        description: `An assertion that does not hold now is stored too. ${ETAG}`,
        params: byId,
        querystring: dryRunQuery,
        body: AssertionWriteSchema,
        response: {
          200: ShownAssertionSchema,
          201: ShownAssertionSchema,
          ...errorAnswers(...WRITE_ERRORS, 'invalid_url'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { dry_run: dryRun = false } = request.query;
      const assertion = assertionAt(id, request.body as Omit<Assertion, 'id'> & { readonly id?: string });
      let isNew = false;
      const list = await write(
        request,
        dryRun,
        (stored) => {
          if (stored === null) return CANNOT_READ;
          const at = stored.findIndex((one) => one.id === id);
          isNew = at < 0;
          if (!isNew && isCreation(request, id))
            return refusal('precondition_failed', `the assertion ${id} exists already`);
          return isNew ? [...stored, assertion] : stored.with(at, assertion);
        },
        id,
      );
      const one = await shownOne(list, id, request);
      if (dryRun) return reply.send({ ...one, dry_run: true });
      reply.header('etag', etagOf(list));
      if (isNew) reply.code(201).header('location', `${PATH}/${encodeURIComponent(id)}`);
      return reply.send(one);
    },
  );

  api.delete(
    `${PATH}/:id`,
    {
      schema: {
        operationId: 'deleteAssertion',
        tags: ['assertions'],
        summary: 'Delete one assertion',
        description: ETAG,
        params: byId,
        querystring: dryRunQuery,
        response: {
          204: empty,
          ...errorAnswers(...errorsOf.write, 'invalid_url', 'invalid_header', 'not_found', 'precondition_failed'),
        },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { dry_run: dryRun = false } = request.query;
      const list = await write(request, dryRun, (stored) => {
        if (stored === null) return CANNOT_READ;
        const others = stored.filter((one) => one.id !== id);
        return others.length < stored.length ? others : refusal('not_found', `there is no assertion ${id}`);
      });
      if (!dryRun) reply.header('etag', etagOf(list));
      return reply.code(204).send();
    },
  );
};

/** Whether a request must create the assertion `only`, and has no other precondition. */
function isCreation(request: FastifyRequest, only: string | undefined): boolean {
  const { ifMatch, ifNoneMatch } = preconditionsOf(request);
  return only !== undefined && ifMatch === undefined && ifNoneMatch !== undefined;
}

const CANNOT_READ: Refusal = refusal(
  'store_unavailable',
  'the stored list of assertions cannot be read; replace the whole list (PUT /api/v1/assertions)',
);

/** Returns the assertion of a request with the id of its path. Throws an `ApiError` if it is not valid. */
function assertionAt(
  id: string,
  { id: own = id, ...body }: Omit<Assertion, 'id'> & { readonly id?: string },
): Assertion {
  const checked = assertionSchema.safeParse({ ...body, id });
  if (own !== id || !checked.success) {
    const message =
      own === id
        ? 'Must be 1 to 253 printable characters without commas.'
        : `Must be ${JSON.stringify(id)}, as in the path.`;
    throw new ApiError('invalid_request', undefined, [{ pointer: '/id', code: 'invalid_value', message }]);
  }
  return { id, ...body } as Assertion;
}

function shown(assertion: Assertion, result: AssertionResult | undefined) {
  if (result === undefined) throw new Error(`show the assertion ${assertion.id}: it has no result`);
  const { id, ...others } = result;
  return { id, assertion, ...others } as unknown as z.infer<typeof ShownAssertionSchema>;
}
