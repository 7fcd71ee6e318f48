import type { AskAnswer, FlowQuestion } from './flow-question.js';
import type { PolicyDiff } from './policy-diff.js';

/**
 * A question about policies. `diff` compares two policies, and `ask` asks about one policy. `limit`: the
 * maximum number of regions in each list of the answer.
 */
export type AnalysisQuestion =
  | { readonly kind: 'diff'; readonly limit: number }
  | { readonly kind: 'ask'; readonly asked: FlowQuestion; readonly limit: number };

export type AnalysisAnswer =
  | { readonly kind: 'diff'; readonly diff: PolicyDiff }
  | { readonly kind: 'ask'; readonly answer: AskAnswer }
  /** The question is not valid. */
  | {
      readonly kind: 'invalid_question';
      readonly problems: readonly { readonly pointer: string; readonly message: string }[];
    };
