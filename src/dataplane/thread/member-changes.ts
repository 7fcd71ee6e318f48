import { AddressSet } from '#addresses/address-map.js';
import type { MembersChanged } from '#contracts/datapath/datapath.js';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import type { Slots } from '#dataplane/activate/slots.js';
import type { FlowRenewal } from '#dataplane/flows/flow-renewal.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import type { KernelMembers } from '#dataplane/members/kernel-members.js';

/**
 * `hasFormerPrograms`: whether hooks may have BPF programs of an earlier build that read the same maps. This
 * is so before `attach`, and during a takeover.
 */
type Loaded = { readonly members: KernelMembers; readonly slots: Slots; readonly hasFormerPrograms: boolean };

/**
 * Applies changes of members (addresses of Kubernetes objects), and makes the datapath classify the flows of
 * changed addresses again. See `Datapath.changeMembers`.
 */
export class MemberChanges {
  /** Changed addresses that are stored in the map `members`, but whose flows a failure left as they were. */
  #unclassified = new AddressSet();

  constructor(
    private readonly loaded: () => Loaded,
    private readonly flows: FlowRenewal,
  ) {}

  change(change: MembershipChange): MembersChanged {
    return this.#apply((members) => members.change(change), change);
  }

  replace(list: MemberList): MembersChanged {
    return this.#apply((members) => members.replace(list), list);
  }

  #apply(store: (members: KernelMembers) => AddressSet, change: MembershipChange): MembersChanged {
    const { members, slots, hasFormerPrograms } = this.loaded();
    // Map the flow table first, so that a failure occurs before the first store. Nodes without members
    // (addresses of Kubernetes objects) do not map it, because the mapping adds to the resident memory of the
    // process.
    if (change.addresses.length > 0 || members.count > 0) this.flows.map();
    const changed = new AddressSet([...store(members), ...this.#unclassified]);
    // If a line below throws, a second call with the same change finds nothing to change. So the next change
    // reclassifies the flows of these addresses too.
    this.#unclassified = changed;
    // Programs of an earlier build may not read the count of changes a second time (`check_members`). So wait
    // for a grace period, until no packet uses the former entries of the changed addresses.
    if (changed.size > 0 && hasFormerPrograms) awaitGracePeriod();
    const flows = changed.size === 0 ? 0 : this.flows.reclassify(changed);
    this.#unclassified = new AddressSet();
    const { slotInForce } = slots;
    const uncompiled = slotInForce === undefined ? 0 : members.uncompiled(change, slotInForce);
    return { members: members.count, refused: members.refused, uncompiled, flows };
  }
}
