import { z } from 'zod';
import { authorOf } from '#api/access/authentication.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError, detailOf } from '#api/errors/errors.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { sendJson } from '#api/policies/policy-answer.js';
import { hangUpOf } from '#api/requests/hang-up.js';
import { noQuery } from '#api/requests/query-parameters.js';
import { readBodyAs } from '#api/requests/request-body.js';
import type { AnalysisAnswer } from '#contracts/analysis/analysis.js';
import { LINT_CHECKS } from '#contracts/analysis/policy-lint.js';
import type { Refusal } from '#contracts/refusal.js';
import type { PolicyReference } from '#policies/analysis.js';
import { flowQuestionFields } from '#policy/document/assertion-schema.js';
import { policySchema } from '#policy/document/policy-schema.js';
import { AskAnswerSchema, PolicyDiffSchema } from './analysis.schema.js';
import { LintCheckSchema, PolicyLintSchema } from './policy-lint.schema.js';

const limit = z.int().min(0).max(1_000).optional().describe('The maximum number of regions in each list. Default: 50.');
const DEFAULT_LIMIT = 50;

const Reference = z
  .union([
    z.strictObject({ policy: policySchema.describe('A draft in singleton form.') }),
    z.strictObject({
      id: z.string().min(1),
      revision: z.int().min(1).optional().describe('Default: the newest revision.'),
    }),
    z.strictObject({ active: z.literal(true).describe('The active policy.') }),
  ])
  .meta({
    id: 'PolicyReference',
    description: 'A draft, a stored policy or one of its revisions, or the active policy.',
  });

const DiffSchema = z
  .strictObject({
    from: Reference.optional().describe('Default: the active policy.'),
    to: Reference,
    limit,
  })
  .meta({
    id: 'PolicyDiffRequest',
    description: 'Asks what changes for flows if one policy replaces another.',
    examples: [{ to: { policy: { default_policy: 'deny', source_groups: [] } } }],
  });

const AskSchema = z
  .strictObject({
    policy: Reference.optional().describe('Default: the active policy.'),
    ...flowQuestionFields,
    limit,
  })
  .meta({
    id: 'PolicyQuestion',
    description: 'Asks whether flows pass. A field that is left out asks who can reach, or what can be reached.',
    examples: [{ to: ['10.9.0.5'], ports: [22] }],
  });

const LintSchema = z
  .strictObject({
    policy: Reference.optional().describe('Default: the active policy.'),
    checks: z.array(LintCheckSchema).min(1).optional().describe('Default: every check.'),
    limit: limit.describe('The maximum number of findings of each check. Default: 50.'),
  })
  .meta({
    id: 'PolicyLintRequest',
    description: 'Asks for rules that can be removed or merged without any change, and for conflicts.',
    examples: [{ checks: ['unreachable', 'removable'] }],
  });

const errors = errorAnswers(
  ...errorsOf.body,
  'invalid_policy',
  'not_found',
  'store_unavailable',
  'too_many_questions',
  'too_costly',
  'feature_unavailable',
);

/** The options of a route that answers a question about policies and changes nothing. */
function questionRoute<Body extends z.ZodType, Answer extends z.ZodType>({
  operationId,
  summary,
  body,
  answer,
}: {
  readonly operationId: string;
  readonly summary: string;
  readonly body: Body;
  readonly answer: Answer;
}) {
  return {
    config: { access: { management: 'read' as const } },
    validatorCompiler: readBodyAs(() => body),
    schema: {
      operationId,
      tags: ['policy'],
      summary,
      querystring: noQuery,
      body,
      response: { 200: answer, ...errors },
    },
  };
}

export const analysisResource: Resource = (api, { policies }) => {
  api.post(
    '/api/v1/policy/diff',
    questionRoute({
      operationId: 'diffPolicies',
      summary: 'Compare two policies by the flows that they allow and deny',
      body: DiffSchema,
      answer: PolicyDiffSchema,
    }),
    async (request, reply) => {
      const { from, to, limit: most = DEFAULT_LIMIT } = request.body;
      const references = [from === undefined ? ACTIVE : referenceOf(from), referenceOf(to)];
      const asked = { subject: authorOf(request), signal: hangUpOf(reply) };
      const answer = answered(await policies.analyse(references, { kind: 'diff', limit: most }, asked));
      if (answer.kind !== 'diff')
        throw new Error('compare two policies: the analysis returned the answer to another kind of question');
      return sendJson(reply, Buffer.from(JSON.stringify(answer.diff)));
    },
  );

  api.post(
    '/api/v1/policy/ask',
    questionRoute({
      operationId: 'askPolicy',
      summary: 'Ask whether flows pass never, always or sometimes, and which rules decide',
      body: AskSchema,
      answer: AskAnswerSchema,
    }),
    async (request, reply) => {
      const { policy, limit: most = DEFAULT_LIMIT, ...question } = request.body;
      const reference = policy === undefined ? ACTIVE : referenceOf(policy);
      const asked = Object.fromEntries(Object.entries(question).filter(([, value]) => value !== undefined));
      const context = { subject: authorOf(request), signal: hangUpOf(reply) };
      const answer = answered(await policies.analyse([reference], { kind: 'ask', asked, limit: most }, context));
      if (answer.kind !== 'ask')
        throw new Error('ask about a policy: the analysis returned the answer to another kind of question');
      return sendJson(reply, Buffer.from(JSON.stringify(answer.answer)));
    },
  );

  api.post(
    '/api/v1/policy/lint',
    questionRoute({
      operationId: 'lintPolicy',
      summary: 'Find rules that can be removed or merged without any change, and conflicts',
      body: LintSchema,
      answer: PolicyLintSchema,
    }),
    async (request, reply) => {
      const { policy, checks = LINT_CHECKS, limit: most = DEFAULT_LIMIT } = request.body;
      const reference = policy === undefined ? ACTIVE : referenceOf(policy);
      const context = { subject: authorOf(request), signal: hangUpOf(reply) };
      const answer = answered(await policies.analyse([reference], { kind: 'lint', checks, limit: most }, context));
      if (answer.kind !== 'lint')
        throw new Error('lint a policy: the analysis returned the answer to another kind of question');
      return sendJson(reply, Buffer.from(JSON.stringify(answer.lint)));
    },
  );
};

const ACTIVE: PolicyReference = { kind: 'active' };

function referenceOf(reference: z.infer<typeof Reference>): PolicyReference {
  if ('policy' in reference) return { kind: 'draft', policy: reference.policy };
  return 'id' in reference ? { kind: 'stored', ...reference } : ACTIVE;
}

/** Returns the answer. Throws the refusal, or the problems of the question, as an error of the API. */
function answered(answer: AnalysisAnswer | Refusal): Exclude<AnalysisAnswer, { kind: 'invalid_question' }> {
  if (answer.kind === 'refused') throw refused(answer);
  if (answer.kind !== 'invalid_question') return answer;
  const problems = answer.problems.map((problem) => ({ ...problem, code: 'invalid_value' as const }));
  throw new ApiError('invalid_request', detailOf(problems), problems);
}
