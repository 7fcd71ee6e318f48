import type { GroupMembers } from '#contracts/kubernetes/integration-status.js';
import type { KubernetesSource, MemberPage } from '#contracts/kubernetes/kubernetes-source.js';
import type { SourceGroupConfig } from '#contracts/policy/policy-document.js';
import type { Address } from '#contracts/policy/policy-model.js';
import type { StoredPolicy } from '#contracts/policy/policy-record.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { reasonOf } from '#files/system-failure.js';
import { selectorOf } from '#policy/model/sources/selector.js';

export type MembersQuery = {
  readonly policy: string;
  readonly group: string;
  /** Only addresses after this address. Null: from the first address. */
  readonly after: Address | null;
  readonly limit: number;
};

export type GroupMembersPorts = {
  /** Returns the record of a policy and the JSON text of one source group; null if there is no such group. */
  readonly readGroup: (policy: string, group: string) => Promise<StoredPolicy | Refusal | null>;
  readonly membersOf: KubernetesSource['membersOf'];
};

/**
 * Returns the function that reads the members of a source group: the addresses that its selectors select. It
 * resolves with null if there is no such policy or group. Only selectors of the active policy have members.
 */
export function groupMembersOver({ readGroup, membersOf }: GroupMembersPorts) {
  return async ({ policy, group, after, limit }: MembersQuery): Promise<GroupMembers | Refusal | null> => {
    const found = await readGroup(policy, group);
    if (found === null || 'kind' in found) return found;
    if (!found.record.active)
      return refusal('policy_not_active', 'only the source groups of the active policy have members');
    const { sources } = JSON.parse(Buffer.from(found.body).toString()) as Pick<SourceGroupConfig, 'sources'>;
    const keys = new Set((sources.kubernetes ?? []).map((source) => selectorOf(source).key));
    if (keys.size === 0) return { networks: [], total: 0, members: [], next: null };
    let page: MemberPage;
    try {
      // Read one member more than the limit, to know whether another page follows.
      page = await membersOf([...keys], after, limit + 1);
    } catch (failure) {
      return refusal('feature_unavailable', `the Kubernetes thread does not respond: ${reasonOf(failure)}`);
    }
    const members = page.members.slice(0, limit);
    const next = page.members.length > limit ? (members.at(-1)?.address ?? null) : null;
    return { networks: page.networks, total: page.total, members, next };
  };
}
