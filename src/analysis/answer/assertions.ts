import { type AddressSpace, type Point, type Span, spansOf } from '#analysis/engine/address-space.js';
import type { Assertion, AssertionResult } from '#contracts/analysis/assertion.js';
import type { FlowQuestion } from '#contracts/analysis/flow-question.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { assertionsSchema } from '#policy/document/assertion-schema.js';
import { shapeProblems } from '#policy/document/shape.js';
import { pointerOf } from '#policy/model/pointer.js';
import { addressText } from './address-set.js';
import { type AskOptions, deciderText, flowsThat, formatted, type Side } from './ask.js';
import { type QuestionProblem, type ReadQuestion, readQuestion } from './question.js';
import { serviceText } from './service-set.js';

/** Checks all assertions of a document. Returns the problems of a document that is not valid. */
export function checkAssertions(
  policy: Policy,
  document: unknown,
  options: AskOptions,
): readonly AssertionResult[] | { readonly problems: readonly QuestionProblem[] } {
  const shape = shapeProblems(assertionsSchema, document);
  if (shape.length > 0) return { problems: shape.map(({ path, message }) => ({ pointer: pointerOf(path), message })) };
  const { assertions } = document as { readonly assertions: readonly Assertion[] };
  const problems: QuestionProblem[] = repeatedIds(assertions);
  const judged = { effective: policy, enforced: enforced(policy) };
  const results = assertions.map((assertion, at) => {
    const [kind, asked] = statementOf(assertion);
    const read = readQuestion(asked, policy, options.space);
    if ('question' in read)
      return check(assertion.id, kind, asked, judged[assertion.judge ?? 'effective'], read, options);
    for (const { pointer, message } of read) problems.push({ pointer: `/assertions/${at}/${kind}${pointer}`, message });
    return null;
  });
  return problems.length > 0 ? { problems } : results.filter((result) => result !== null);
}

type Kind = 'never' | 'always' | 'only';

function statementOf(assertion: Assertion): [Kind, FlowQuestion] {
  if ('never' in assertion) return ['never', assertion.never];
  return 'always' in assertion ? ['always', assertion.always] : ['only', assertion.only];
}

function repeatedIds(assertions: readonly Assertion[]): QuestionProblem[] {
  const seen = new Set<string>();
  return assertions.flatMap(({ id }, at) => {
    if (!seen.has(id)) {
      seen.add(id);
      return [];
    }
    return [{ pointer: `/assertions/${at}/id`, message: 'An earlier assertion has the same id.' }];
  });
}

/** Returns the policy with the mode enforce everywhere. */
function enforced(policy: Policy): Policy {
  return {
    groups: policy.groups.map((group) => ({
      ...group,
      mode: 'enforce',
      rules: group.rules.map((rule) => (rule.mode === 'enforce' ? rule : { ...rule, mode: 'enforce' })),
    })),
    default: { ...policy.default, mode: 'enforce' },
  };
}

function check(
  id: string,
  kind: Kind,
  asked: FlowQuestion,
  policy: Policy,
  read: ReadQuestion,
  options: AskOptions,
): AssertionResult {
  const { space, limit } = options;
  const question = kind === 'only' ? fromOthers(asked, read, policy, space) : read;
  const against = flowsThat(kind === 'always' ? 'are_denied' : 'pass', policy, question, options);
  const regions = against.parts.slice(0, limit).map((part) => formatted(part, against.compared, space));
  const result = against.parts.length > 0 ? 'failed' : against.compared.left.length > 0 ? 'unknown' : 'fulfilled';
  return {
    id,
    result,
    message: messageOf(result, kind, against, options),
    regions,
    regions_omitted: against.parts.length - regions.length,
  };
}

/** Returns the question about all sources that are not in `from`, and that its selectors do not select. */
function fromOthers(asked: FlowQuestion, read: ReadQuestion, policy: Policy, space: AddressSpace): ReadQuestion {
  const named = asked.from !== undefined && 'group' in asked.from ? asked.from.group : null;
  const group = policy.groups.find(({ id }) => id === named);
  const own = group === undefined ? (read.question.sources ?? []) : spansOf(group.sources, space);
  const selectors = new Set(group?.selectors.map(({ key }) => key));
  const others: Span[] = [];
  let from: Point = space.spanOf({ address: 0, length: 0 }).start;
  for (const { start, end } of own) {
    if (from < start) others.push({ start: from, end: start });
    from = end;
  }
  if (from < space.end) others.push({ start: from, end: space.end });
  return {
    ...read,
    question: { ...read.question, sources: others },
    known: (atom) => (atom.kind === 'selected' && selectors.has(atom.key) ? false : read.known(atom)),
  };
}

function messageOf(result: AssertionResult['result'], kind: Kind, against: Side, options: AskOptions): string {
  if (result === 'fulfilled') return 'fulfilled';
  const [first] = against.parts;
  if (first === undefined) return 'the limit of steps was reached, so the assertion could not be checked';
  const { space } = options;
  const { sources, destinations, services, conditions, decider } = formatted(first, against.compared, space);
  const flows = `${addressText(sources, space)} → ${addressText(destinations, space)} ${serviceText(services)}`;
  const when = conditions.length === 0 ? '' : ' under conditions';
  const others = against.parts.length - 1;
  const more = others === 0 ? '' : `, and ${others} more ${others === 1 ? 'region' : 'regions'}`;
  return `${deciderText(decider)} ${kind === 'always' ? 'denies' : 'passes'} ${flows}${when}${more}`;
}
