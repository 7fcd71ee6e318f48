import type { Schemas } from './api/client.js';
import { keptDraft } from './pages/policy/kept-drafts.js';

/**
 * The policy that a question is about, as the URL parameter `of`: empty for the policy in force, the id of a
 * stored policy, or `draft:ID` for the draft of that policy in this browser tab (`draft:new` for the draft of
 * a new policy).
 */
export type AskedPolicy = string;

const DRAFT = 'draft:';
const NEW = 'new';

export const draftOf = (id: string | null): AskedPolicy => `${DRAFT}${id ?? NEW}`;
export const isDraft = (of: AskedPolicy): boolean => of.startsWith(DRAFT);

/**
 * Returns the id of the stored policy that a question is about, or whose draft it is about; undefined for the
 * policy in force.
 */
export const policyIdOf = (of: AskedPolicy): string | undefined =>
  of === '' ? undefined : isDraft(of) ? of.slice(DRAFT.length) : of;

/** The policy as a reference for `POST /api/v1/policy/ask`. Throws if the draft cannot be read. */
export async function referenceOf(of: AskedPolicy): Promise<Schemas['PolicyReference']> {
  if (of === '') return { active: true };
  return isDraft(of) ? { policy: await draftDocument(of) } : { id: of };
}

/** The policy in singleton form for `POST /api/v1/policy/explain`; undefined for the policy in force. */
export async function documentOf(
  of: AskedPolicy,
  signal: AbortSignal,
): Promise<Schemas['ExplainPacket']['policy'] | undefined> {
  if (of === '') return undefined;
  if (isDraft(of)) return draftDocument(of);
  const { storedPolicy } = await import('./pages/policy/policy-requests.js');
  const { singletonOf } = await import('./pages/policy/policy-text.js');
  return singletonOf((await storedPolicy(of, signal)).document as object);
}

async function draftDocument(of: AskedPolicy): Promise<Schemas['PolicyConfig']> {
  const id = policyIdOf(of);
  const draft = keptDraft(id === NEW || id === undefined ? null : id);
  if (draft === null) throw new Error('This browser tab has no draft of this policy.');
  const { readText, singletonOf } = await import('./pages/policy/policy-text.js');
  const { value } = readText(draft.text);
  if (value === null) throw new Error('The draft has syntax errors. Correct them first.');
  return singletonOf(value);
}
