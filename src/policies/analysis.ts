import { setTimeout as pause } from 'node:timers/promises';
import type { AnalysisAnswer, AnalysisQuestion, SeenByNode } from '#contracts/analysis/analysis.js';
import type { SeenFlows } from '#contracts/analysis/seen-flows.js';
import { withJoinedSignal } from '#contracts/joined-signal.js';
import type { PolicyConfig } from '#contracts/policy/policy-document.js';
import type { StoredPolicy } from '#contracts/policy/policy-record.js';
import { type Refusal, refusal } from '#contracts/refusal.js';
import { PolicyThreadFailed } from '#policies/thread/policy-thread.js';
import type { AnalysePolicies, PolicySurroundings } from '#policies/thread/policy-work.js';
import { storedText, textKey } from '#policies/thread/stored-text.js';
import type { PolicyStore } from '#store/store-types.js';
import type { ExplainLane } from './explain.js';
import { runOrRefuse } from './fair-queue.js';

/**
 * A policy that a question names: a draft in singleton form (without name and mode), a stored policy or one
 * of its revisions, or the policy in force (`active`).
 */
export type PolicyReference =
  | { readonly kind: 'draft'; readonly policy: PolicyConfig }
  | { readonly kind: 'stored'; readonly id: string; readonly revision?: number | undefined }
  /** `isStored`: the store has this text, so the thread may keep the policy for the next question. */
  | { readonly kind: 'text'; readonly stored: StoredPolicy | null; readonly isStored: boolean }
  | { readonly kind: 'active' };

export type AnalysisPorts = {
  readonly policies: PolicyStore;
  readonly lane: ExplainLane;
  readonly surroundings: PolicySurroundings;
  /** Returns the flows that this node has seen; null if it records none. */
  readonly seen: { readonly node: string; flows(): Promise<SeenFlows | null> } | null;
};

/**
 * The time limit in milliseconds of an analysis. It is long enough to read two policies of the largest size,
 * and to reach the limit of steps.
 */
export const ANALYSIS_BUDGET_MS = 30_000;
/** The thread for analyses ends after this many milliseconds without an analysis. */
export const ANALYSIS_IDLE_MS = 60_000;

/** The time in milliseconds that an analysis waits for the seen flows. */
const SEEN_WITHIN_MS = 2_000;

/**
 * Answers a question about policies in the thread for analyses. `subject` is the subject of the client's API
 * token. When `signal` is aborted, the thread is terminated, and the next analysis starts a new one.
 */
export async function analysePolicies(
  { policies, lane, surroundings, seen }: AnalysisPorts,
  references: readonly PolicyReference[],
  question: AnalysisQuestion,
  { subject, signal }: { readonly subject: string; readonly signal: AbortSignal },
): Promise<AnalysisAnswer | Refusal> {
  const limit = AbortSignal.timeout(lane.budgetMs);
  try {
    return await runOrRefuse(lane.queue, subject, async () => {
      const work: AnalysePolicies['policies'][number][] = [];
      for (const [at, reference] of references.entries()) {
        const found = await textOf(policies, reference);
        if ('code' in found) return { ...found, detail: `${pointerOf(at, references)}: ${found.detail}` };
        work.push(found);
      }
      const whole = question.kind === 'diff' ? { ...question, seen: await seenFlows(seen) } : question;
      const perform = (isWhole: boolean) =>
        withJoinedSignal([signal, limit], (joined) =>
          lane.thread.perform(
            {
              kind: 'analyse',
              policies: isWhole ? work : work.map(({ key, text }) => ({ key, text: key === null ? text : null })),
              surroundings,
              question: whole,
            },
            { signal: joined },
          ),
        );
      const known = await perform(false);
      const result = known.kind === 'unknown' ? await perform(true) : known;
      switch (result.kind) {
        case 'analysed':
          return result.answer;
        case 'unreadable': {
          const base = pointerOf(result.policy, references);
          const problems = result.problems.map((problem) => ({
            ...problem,
            pointer: `${base}/policy${problem.pointer}`,
          }));
          return { ...refusal('invalid_policy', `${base}: the policy is not valid`), problems };
        }
        case 'unknown':
          throw new Error('analyse policies: the thread does not have the text of a policy');
      }
    });
  } catch (failure) {
    if (!(failure instanceof PolicyThreadFailed)) throw failure;
    if (!limit.aborted) return refusal('feature_unavailable', failure.message);
    return refusal('too_costly', `the analysis was cancelled after ${lane.budgetMs} ms: use a smaller policy`);
  }
}

async function seenFlows(seen: AnalysisPorts['seen']): Promise<SeenByNode> {
  if (seen === null) return { unavailable: 'this node has no record of flows' };
  const late = new AbortController();
  try {
    const flows = await Promise.race([
      seen.flows(),
      pause(SEEN_WITHIN_MS, undefined, { signal: late.signal }).then(() => {
        throw new Error(`no answer within ${SEEN_WITHIN_MS} ms`);
      }),
    ]);
    if (flows === null) return { unavailable: 'this node records no flows: flow_history.retention is 0s' };
    return { node: seen.node, flows };
  } catch (failure) {
    return { unavailable: `the recorded flows cannot be read: ${(failure as Error).message}` };
  } finally {
    late.abort();
  }
}

const pointerOf = (at: number, references: readonly unknown[]): string =>
  references.length === 1 ? '' : at === 0 ? '/from' : '/to';

const EMPTY = { key: 'none', text: { body: Buffer.from('{}'), form: 'singleton', recordMode: 'enforce' } } as const;

async function textOf(
  policies: PolicyStore,
  reference: PolicyReference,
): Promise<AnalysePolicies['policies'][number] | Refusal> {
  switch (reference.kind) {
    case 'draft':
      return {
        key: null,
        text: { body: Buffer.from(JSON.stringify(reference.policy)), form: 'singleton', recordMode: 'enforce' },
      };
    case 'text':
      return reference.stored === null || reference.isStored
        ? ofStored(reference.stored)
        : { key: null, text: storedText(reference.stored) };
    case 'active':
      return ofStored(await policies.active());
    case 'stored': {
      const { id, revision } = reference;
      const stored = revision === undefined ? await policies.get(id) : await policies.revision(id, revision);
      if (stored !== null) return ofStored(stored);
      return refusal(
        'not_found',
        `there is no policy ${id}${revision === undefined ? '' : ` with the revision ${revision}`}`,
      );
    }
  }
}

function ofStored(
  stored: (Pick<StoredPolicy, 'body'> & { readonly record: StoredPolicy['record'] }) | null,
): AnalysePolicies['policies'][number] {
  return stored === null ? EMPTY : { key: textKey(stored.record), text: storedText(stored) };
}
