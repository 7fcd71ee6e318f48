import type { ListedMembership } from '#contracts/kubernetes/membership.js';
import type { Selector } from '#contracts/policy/policy-model.js';
import type { PolicyThread } from '#policies/thread/policy-thread.js';
import type { PolicyResult, PrepareGroup, PreparePolicy, PrepareStored } from '#policies/thread/policy-work.js';

export type ThreadPorts = {
  readonly thread: PolicyThread;
  /**
   * Returns the selector resolution (which selectors are resolved) and the members (addresses) of selectors
   * for the compilation.
   */
  readonly membership: (selectors: readonly Selector[], options: MemberOptions) => Promise<ListedMembership>;
};

export type MemberOptions = {
  /** The maximum time in milliseconds to wait for selectors that are not resolved yet. */
  readonly waitMs: number;
  /**
   * Whether Weir may start watches for selectors that the policy in force does not contain. If not, the
   * addresses that are known now are returned at once, and such selectors are unresolved.
   */
  readonly mayWatch: boolean;
};

type Options = {
  readonly signal: AbortSignal;
  readonly transfer?: boolean;
  readonly members: MemberOptions;
};

type Preparing = PreparePolicy | PrepareGroup | PrepareStored;
type Prepared<W extends Preparing> = Exclude<PolicyResult<W>, { readonly kind: 'needs_members' }>;

/** Prepares a policy in the thread, with the addresses that its selectors select. */
export async function prepareIn<W extends Preparing>(
  { thread, membership }: ThreadPorts,
  work: W,
  { members, ...options }: Options,
): Promise<Prepared<W>> {
  const result: PolicyResult<Preparing> = await thread.perform(work, options);
  if (result.kind !== 'needs_members') return result as Prepared<W>;
  const listed = await membership(result.selectors, members);
  const { signal } = options;
  const ended = await thread.perform({ kind: 'prepare_with_members', id: result.id, membership: listed }, { signal });
  return ended as Prepared<W>;
}
