import { ofFamily } from '#addresses/ip-address.js';
import type { AnalysisAnswer, AnalysisQuestion } from '#contracts/analysis/analysis.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { testedAssertionsSchema } from '#policy/document/assertion-schema.js';
import { askPolicy } from './answer/ask.js';
import { checkAssertions } from './answer/assertions.js';
import { policyDiff } from './answer/policy-diff.js';
import { spacesOf } from './engine/address-space.js';
import { lintPolicy } from './lint/lint.js';

/** The limit of steps of one comparison. It is reached after a few seconds. */
const STEPS = 8_000_000;
/**
 * The limit of steps of one check of lint: all checks together must end within the time limit of an analysis.
 */
const LINT_STEPS = 4_000_000;

/**
 * Answers a question. `policies` has two policies for a diff (before, after), and one for any other
 * question. The policies after the first one of a question about assertions are former policies. `ipv6`:
 * whether the answer is about IPv6 flows too, because the node enforces IPv6 policies.
 */
export function analyse(policies: readonly Policy[], question: AnalysisQuestion, ipv6: boolean): AnalysisAnswer {
  const [first, second = first] = policies;
  if (first === undefined || second === undefined) throw new RangeError('analyse policies: there is no policy');
  const options = { spaces: spacesOf(ipv6), limit: question.limit, steps: STEPS };
  switch (question.kind) {
    case 'diff':
      return { kind: 'diff', diff: policyDiff(first, second, { ...options, seen: question.seen }) };
    case 'assertions': {
      const { former = {}, mayLackGroups = false } = question;
      const results = checkAssertions(first, question.document, testedAssertionsSchema, {
        ...options,
        mayLackGroups,
        formerOf: ({ id }) => policies[former[id] ?? -1] ?? null,
      });
      return 'problems' in results ? { kind: 'invalid_question', ...results } : { kind: 'assertions', results };
    }
    case 'lint':
      return {
        kind: 'lint',
        lint: lintPolicy(first, {
          ...options,
          // An edit may change no IPv6 flow either, also if it is proposed by a node that drops all IPv6.
          spaces: spacesOf(ipv6 || hasIpv6(first)),
          steps: LINT_STEPS,
          checks: question.checks,
        }),
      };
    case 'ask': {
      const answer = askPolicy(first, question.asked, options);
      return 'answer' in answer ? { kind: 'ask', answer } : { kind: 'invalid_question', problems: answer };
    }
  }
}

/** Whether a policy has IPv6 sources or destinations. */
const hasIpv6 = ({ groups }: Policy): boolean =>
  groups.some(({ sources, rules }) =>
    [sources, ...rules.map(({ destinations }) => destinations)].some((list) => ofFamily(list, 'ipv6').length > 0),
  );
