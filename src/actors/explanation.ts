import type { Refusal } from '#bus/requests.js';
import type { PolicyConfig } from '#policy/document.js';
import type { ExplainQuery, Explanation } from '#policy/explain.js';
import { etagOf, type StoredPolicy } from '#policy/record.js';
import { refusal } from '#statecharts/refusal.js';
import type { PolicyStore } from '#store/port.js';
import { type PolicyThread, PolicyThreadDied } from './policy-thread.js';
import type { PolicySurroundings, PolicyText } from './policy-work.js';
import { storedText } from './stored-text.js';

/** `policy` is a draft in singleton form, of the right shape but not yet validated; left out, the active one. */
export type ExplainQuestion = { readonly policy?: PolicyConfig; readonly query: ExplainQuery };

export type ExplainPorts = {
  readonly policies: PolicyStore;
  readonly thread: PolicyThread;
  readonly surroundings: PolicySurroundings;
};

/** Asks the policy thread, which knows the policies that it explained last; an unknown one is sent along. */
export async function explainPolicy(ports: ExplainPorts, question: ExplainQuestion): Promise<Explanation | Refusal> {
  try {
    return question.policy === undefined
      ? await explainActive(ports, question.query)
      : await explainDraft(ports, question.policy, question.query);
  } catch (failure) {
    if (failure instanceof PolicyThreadDied) return refusal('feature_unavailable', failure.message);
    throw failure;
  }
}

async function explainDraft(
  { thread, surroundings }: ExplainPorts,
  policy: PolicyConfig,
  query: ExplainQuery,
): Promise<Explanation | Refusal> {
  const text: PolicyText = { body: Buffer.from(JSON.stringify(policy)), form: 'singleton', recordMode: 'enforce' };
  const result = await thread.perform({ kind: 'explain', key: null, text, surroundings, query });
  switch (result.kind) {
    case 'explained':
      return result.explanation;
    case 'unreadable': {
      const problems = result.problems.map((problem) => ({ ...problem, pointer: `/policy${problem.pointer}` }));
      return { ...refusal('invalid_policy', 'the draft is not valid'), problems };
    }
    case 'unknown':
      throw new Error('the policy thread does not know a draft that came along');
  }
}

async function explainActive(
  { policies, thread, surroundings }: ExplainPorts,
  query: ExplainQuery,
): Promise<Explanation | Refusal> {
  const record = (await policies.list()).find(({ active }) => active) ?? null;
  const known = await thread.perform({ kind: 'explain', key: etagOf(record), text: null, surroundings, query });
  if (known.kind === 'explained') return known.explanation;
  const stored = await policies.active();
  const key = etagOf(stored?.record ?? null);
  const told = await thread.perform({ kind: 'explain', key, text: activeText(stored), surroundings, query });
  if (told.kind === 'explained') return told.explanation;
  return refusal('feature_unavailable', 'the stored policy cannot be read');
}

function activeText(stored: StoredPolicy | null): PolicyText {
  return stored === null ? { body: Buffer.from('{}'), form: 'singleton', recordMode: 'enforce' } : storedText(stored);
}
