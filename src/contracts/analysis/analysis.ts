import type { AssertionResult } from './assertion.js';
import type { AskAnswer, FlowQuestion } from './flow-question.js';
import type { PolicyDiff } from './policy-diff.js';
import type { LintCheck, PolicyLint } from './policy-lint.js';
import type { SeenFlows } from './seen-flows.js';

/** The flows that a node has recorded, or a sentence with the reason why they cannot be read. */
export type SeenByNode = { readonly node: string; readonly flows: SeenFlows } | { readonly unavailable: string };

/**
 * A question about policies. `diff` compares two policies; the others are about one policy. `limit`: the
 * maximum number of regions (sets of flows) in each list of the answer, or of the findings of each check.
 * `seen`: the flows whose change the answer tells. `document`: a parsed document with assertions. `former`:
 * for each assertion with a former policy, by its id, the index of that policy. `mayLackGroups`: an assertion
 * about a source group that the policy lacks is broken, and not a problem of the document.
 */
export type AnalysisQuestion =
  | { readonly kind: 'diff'; readonly limit: number; readonly seen?: SeenByNode }
  | { readonly kind: 'ask'; readonly asked: FlowQuestion; readonly limit: number }
  | {
      readonly kind: 'assertions';
      readonly document: unknown;
      readonly limit: number;
      readonly former?: Readonly<Record<string, number>>;
      readonly mayLackGroups?: boolean;
    }
  | { readonly kind: 'lint'; readonly checks: readonly LintCheck[]; readonly limit: number };

export type AnalysisAnswer =
  | { readonly kind: 'diff'; readonly diff: PolicyDiff }
  | { readonly kind: 'ask'; readonly answer: AskAnswer }
  | { readonly kind: 'assertions'; readonly results: readonly AssertionResult[] }
  | { readonly kind: 'lint'; readonly lint: PolicyLint }
  /** The question is not valid. */
  | {
      readonly kind: 'invalid_question';
      readonly problems: readonly { readonly pointer: string; readonly message: string }[];
    };
