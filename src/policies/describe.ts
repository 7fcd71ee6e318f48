import { type ListedMembership, NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import type { PolicyThread } from '#policies/thread/policy-thread.js';
import type { PolicySurroundings } from '#policies/thread/policy-work.js';
import { storedText } from '#policies/thread/stored-text.js';
import type { PolicyStore } from '#store/store-types.js';

/** A description of the active policy: its warnings, and its compiled form as UTF-8 text. */
export type PolicyDescription = { readonly warnings: readonly Warning[]; readonly listing: Uint8Array };

export type DescriptionPorts = {
  readonly policies: PolicyStore;
  /**
   * Creates a policy thread for one description. A large policy takes seconds to read, and would delay the
   * other requests of a common thread.
   */
  readonly createThread: () => PolicyThread;
  readonly surroundings: PolicySurroundings;
  /** The addresses that the Kubernetes selectors select; undefined on a node without integrations. */
  readonly membership: ListedMembership | undefined;
};

const MAX_LISTING_BYTES = 32 << 20;

/**
 * Describes the active policy; returns null if no policy is active. Rejects if the stored policy cannot be
 * read.
 */
export async function describePolicy(
  { policies, createThread, surroundings, membership = NOTHING_LISTED }: DescriptionPorts,
  signal: AbortSignal,
): Promise<PolicyDescription | null> {
  const { stored } = await policies.toEnforce();
  if (stored === null) return null;
  const thread = createThread();
  try {
    const text = storedText(stored);
    const described = await thread.perform(
      { kind: 'describe', text, surroundings, membership, maxBytes: MAX_LISTING_BYTES },
      { signal },
    );
    switch (described.kind) {
      case 'described':
        return { warnings: described.warnings, listing: described.listing };
      case 'too_large':
        throw new Error(`compile the active policy: ${described.detail}`);
      case 'unreadable':
        throw new Error(`read the active policy: ${described.problems[0]?.message ?? described.code}`);
    }
  } finally {
    await thread.close();
  }
}
