import type { z } from 'zod';
import type { AddressSpace } from '#analysis/engine/address-space.js';
import type { Assertion, FormerPolicy } from '#contracts/analysis/assertion.js';
import type { FlowQuestion } from '#contracts/analysis/flow-question.js';
import type { ProblemCode } from '#contracts/policy/policy-problem.js';
import { LIMITS } from '#policy/document/limits.js';
import { shapeProblems } from '#policy/document/shape.js';
import { pointerOf } from '#policy/model/pointer.js';
import { readQuestion } from './question.js';

/** A problem of a document with assertions, with its JSON pointer. */
export type AssertionProblem = { readonly pointer: string; readonly code: ProblemCode; readonly message: string };

/** The statement of an assertion: a question about flows, or a former policy. */
export type Statement =
  | { readonly kind: 'never' | 'always' | 'only'; readonly asked: FlowQuestion }
  | { readonly kind: 'opens_nothing_since'; readonly former: FormerPolicy };

export function statementOf(assertion: Assertion): Statement {
  if ('never' in assertion) return { kind: 'never', asked: assertion.never };
  if ('always' in assertion) return { kind: 'always', asked: assertion.always };
  if ('only' in assertion) return { kind: 'only', asked: assertion.only };
  return { kind: 'opens_nothing_since', former: assertion.opens_nothing_since };
}

/**
 * Reads a document with assertions. Returns its problems if it is not valid. Does not check that the source
 * groups of its questions exist: each policy has its own. `spaces`: the families of the flows that an
 * assertion can be about.
 */
export function readAssertions(
  document: unknown,
  schema: z.ZodType,
  spaces: readonly AddressSpace[],
): readonly Assertion[] | { readonly problems: readonly AssertionProblem[] } {
  const shape = shapeProblems(schema, document);
  if (shape.length > 0) return { problems: shape.map(({ path, ...told }) => ({ pointer: pointerOf(path), ...told })) };
  const { assertions } = document as { readonly assertions: readonly Assertion[] };
  const problems = [
    ...repeatedIds(assertions),
    ...tooManyFormer(assertions),
    ...assertions.flatMap((assertion, at) => assertionProblems(assertion, `/assertions/${at}`, spaces)),
  ];
  return problems.length > 0 ? { problems } : assertions;
}

/** Returns the problems of the question of an assertion. `pointer`: that of the assertion. */
function assertionProblems(assertion: Assertion, pointer: string, spaces: readonly AddressSpace[]): AssertionProblem[] {
  const statement = statementOf(assertion);
  if (statement.kind === 'opens_nothing_since') return [];
  const read = readQuestion(statement.asked, null, spaces);
  if ('questions' in read) return [];
  return read.map((problem) => ({
    pointer: `${pointer}/${statement.kind}${problem.pointer}`,
    code: 'invalid_value',
    message: problem.message,
  }));
}

function repeatedIds(assertions: readonly Assertion[]): AssertionProblem[] {
  const seen = new Set<string>();
  return assertions.flatMap(({ id }, at) => {
    if (!seen.has(id)) {
      seen.add(id);
      return [];
    }
    const message = 'An earlier assertion has the same id.';
    return [{ pointer: `/assertions/${at}/id`, code: 'duplicate_id' as const, message }];
  });
}

function tooManyFormer(assertions: readonly Assertion[]): AssertionProblem[] {
  const former = assertions.filter((assertion) => 'opens_nothing_since' in assertion);
  if (former.length <= LIMITS.formerPolicies) return [];
  const message = `At most ${LIMITS.formerPolicies} assertions can have opens_nothing_since; here are ${former.length}.`;
  return [{ pointer: '/assertions', code: 'too_many', message }];
}
