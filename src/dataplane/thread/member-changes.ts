import type { MembersChanged } from '#contracts/datapath.js';
import type { MemberList, MembershipChange } from '#contracts/membership.js';
import type { Slots } from '#dataplane/activate/slots.js';
import type { FlowRenewal } from '#dataplane/flows/flow-renewal.js';
import { awaitGracePeriod, awaitGracePeriodBeside } from '#dataplane/loader/grace-period.js';
import type { KernelMembers } from '#dataplane/members/kernel-members.js';
import type { UrgentReply } from '#threads/worker-server.js';

type Loaded = { readonly members: KernelMembers; readonly slots: Slots };
type Reply = UrgentReply<MembersChanged>;
/** A change that is stored, and whose flows are not classified again yet. */
type Pending = {
  readonly changed: ReadonlySet<number>;
  readonly stored: Omit<MembersChanged, 'flows'>;
  readonly reply: Reply;
};

/**
 * Applies changes of members, and makes the datapath classify the flows of changed addresses again. See
 * `Datapath.changeMembers`.
 */
export class MemberChanges {
  readonly #pending = new Set<Pending>();
  /** Addresses that are stored, and whose flows were not classified again because of a failure. */
  #unclassified: ReadonlySet<number> = new Set();
  /** When the last call of `finishNow` ended, and how long it took, in milliseconds. */
  #last = { endedAt: 0, tookMs: 0 };

  constructor(
    private readonly loaded: () => Loaded,
    private readonly flows: FlowRenewal,
  ) {}

  change(change: MembershipChange, reply: Reply): void {
    this.#begin((members) => members.change(change), change, reply);
  }

  replace(list: MemberList, reply: Reply): void {
    this.#begin((members) => members.replace(list), list, reply);
  }

  /**
   * Finishes the pending changes at once, and blocks the thread for a grace period. Must be called from work
   * that keeps the event loop from running. Blocks at most half of the time, so that the work ends also while
   * members change without a pause.
   */
  finishNow(): void {
    const begun = performance.now();
    if (this.#pending.size === 0 || begun - this.#last.endedAt < this.#last.tookMs) return;
    const all = [...this.#pending];
    awaitGracePeriod();
    for (const pending of all) this.#finish(pending);
    const endedAt = performance.now();
    this.#last = { endedAt, tookMs: endedAt - begun };
  }

  close(): void {
    for (const { reply } of this.#pending) reply.failed(new Error('the datapath was closed'));
    this.#pending.clear();
  }

  #begin(store: (members: KernelMembers) => ReadonlySet<number>, change: MembershipChange, reply: Reply): void {
    const { members, slots } = this.loaded();
    // A failure must come before the first store. Nodes without members do not map the table, because the
    // mapping adds to the resident memory of the process.
    if (change.addresses.length > 0 || members.count > 0) this.flows.map();
    const changed = new Set([...store(members), ...this.#unclassified]);
    this.#unclassified = new Set();
    const { slotInForce } = slots;
    const uncompiled = slotInForce === undefined ? 0 : members.uncompiled(change, slotInForce);
    const stored = { members: members.count, refused: members.refused, uncompiled };
    if (changed.size === 0) {
      reply.done({ ...stored, flows: 0 });
      return;
    }
    const pending = { changed, stored, reply };
    this.#pending.add(pending);
    // A packet that is under way may have read the former member, and may still open or renew a flow.
    void awaitGracePeriodBeside().then(
      () => this.#finish(pending),
      (failure: unknown) => this.#pending.delete(pending) && this.#fail(pending, failure),
    );
  }

  #finish(pending: Pending): void {
    if (!this.#pending.delete(pending)) return;
    let flows: number;
    try {
      flows = this.flows.reclassify(pending.changed);
    } catch (failure) {
      this.#fail(pending, failure);
      return;
    }
    pending.reply.done({ ...pending.stored, flows });
  }

  /**
   * The members are stored already, so the same change would change nothing. The next change
   * reclassifies the flows of these addresses too.
   */
  #fail({ changed, reply }: Pending, failure: unknown): void {
    this.#unclassified = new Set([...this.#unclassified, ...changed]);
    reply.failed(failure);
  }
}
