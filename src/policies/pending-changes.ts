import { firstValueFrom } from 'rxjs';
import type { NodeHealth } from '#cluster/rollout/rollout-health.js';
import { notConfirmed, type Rollouts } from '#cluster/rollout/rollouts.js';
import type { Adoption } from '#contracts/datapath/datapath.js';
import type { ChangeEnd, PendingChange, RevertedChange } from '#contracts/policy/pending-change.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { deadlineOf, revertsAs } from '#policies/standing.js';
import { orRefusal } from '#store/or-refusal.js';
import { StoreError } from '#store/store-error.js';
import type { PolicyStore } from '#store/store-types.js';

/**
 * The pending change, and the last reverted change. `nodes`: the health of the nodes that enforce a roll-out
 * first; null if etcd cannot be reached.
 */
export type ChangeView = {
  readonly pending: (PendingChange & { readonly nodes: readonly NodeHealth[] | null }) | null;
  readonly reverted: RevertedChange | null;
};

/** A change that has ended. `generation`: the number of its activation. */
type EndedChange = { readonly kind: 'ended'; readonly generation: number; readonly isEnforced: boolean };

export type PendingChanges = {
  readonly isPending: () => Promise<boolean>;
  read(): Promise<ChangeView>;
  /**
   * Ends the pending change. `generation`: the only generation that may be ended, if given. Resolves when
   * this node enforces the result, or with `isEnforced: false` after 10 s.
   */
  end(end: {
    readonly outcome: ChangeEnd['outcome'];
    readonly generation: number | undefined;
    /** The comment of a revert, for the history. */
    readonly comment: string | undefined;
    readonly author: string;
    readonly dryRun: boolean;
  }): Promise<Refusal | EndedChange>;
  /**
   * Must be called with the policy that the kernel enforces, after the datapath was opened and before it
   * enforces another policy. Reverts the unconfirmed change if the kernel has reverted it, or could not
   * revert it in time. Otherwise takes the deadline of the change from the kernel.
   */
  adopted(adoption: Pick<Adoption, 'inForce' | 'base'>): Promise<void>;
};

type Ports = {
  readonly policies: PolicyStore;
  /** The roll-outs of the cluster; null on a single node. */
  readonly rollouts: Rollouts | null;
  /** Waits until this node enforces the policy of a generation. Returns false after `withinMs`. */
  readonly reaches: (generation: number, withinMs: number) => Promise<boolean>;
  /** Makes the kernel keep the policy in force. `reverts`: the generation that a revert would have. */
  readonly confirmed: (reverts: number) => Promise<void>;
  /** Called after Weir itself has reverted a change. */
  readonly reverted: (change: PendingChange, reason: string) => void;
  readonly now: () => Date;
};

const ENFORCE_MS = 10_000;
/** The author of changes that Weir itself makes. */
export const WEIR = 'weir';
const NONE = refusal('not_found', 'no policy change is pending');

export function pendingChangesOver(ports: Ports): PendingChanges {
  const { policies, rollouts, reaches, confirmed, reverted, now } = ports;
  const present = () => firstValueFrom(policies.pending);
  const revert = async (change: PendingChange, why: string): Promise<void> => {
    const reason = change.terms.kind === 'confirm' ? `${notConfirmed(change.terms.within_ms)}; ${why}` : why;
    const end = { change: change.id, outcome: 'revert', because: 'elapsed', at: now().toISOString() } as const;
    try {
      await policies.settle({ ...end, reason, by: WEIR });
      reverted(change, reason);
    } catch {
      // The store refuses the write, for example because the disk is full. The pending-change actor tries
      // again.
      policies.revertHere(change.id);
    }
  };
  return {
    isPending: async () => (await present()) !== null,
    read: async () => {
      const change = await present();
      const { reverted } = policies;
      if (change === null) return { pending: null, reverted };
      const nodes = rollouts === null ? [] : await rollouts.health(change).catch(() => null);
      return { pending: { ...change, nodes }, reverted };
    },
    end: ({ outcome, generation, comment, author, dryRun }) =>
      orRefusal<EndedChange>(async () => {
        const change = await present();
        if (change === null) return NONE;
        if (generation !== undefined && generation !== change.generation)
          return refusal('change_pending', `the pending change has generation ${change.generation}, not ${generation}`);
        const ended = { kind: 'ended' as const, generation: change.generation };
        if (dryRun) return { ...ended, isEnforced: true };
        const reason = `${author} ${outcome === 'complete' ? 'completed' : 'reverted'} it`;
        const end = { change: change.id, outcome, reason, at: now().toISOString(), by: author };
        const said = comment === undefined ? {} : { comment };
        try {
          await policies.settle({ ...end, ...said, because: 'asked' });
          // Confirm to the kernel first: otherwise the kernel could revert the change while the policy is
          // compiled for its new generation.
          if (outcome === 'complete') await confirmed(revertsAs(change)).catch(() => {});
        } catch (failure) {
          if (!(failure instanceof StoreError) || failure.code !== 'revision_conflict') throw failure;
          return refusal('write_conflict', failure.message);
        }
        return { ...ended, isEnforced: await reaches(await policies.generation(), ENFORCE_MS) };
      }),
    adopted: async ({ inForce, base }) => {
      const change = await present();
      if (change === null) return;
      const hasReverted = inForce?.generation === revertsAs(change);
      if (rollouts !== null) {
        if (hasReverted) policies.revertHere(change.id);
      } else if (hasReverted) await revert(change, 'the kernel reverted it, because no process did so in time');
      else if (base?.generation === revertsAs(change)) policies.correctDeadline(change.id, deadlineOf(base));
      else if (inForce?.generation !== change.before.generation)
        await revert(
          change,
          'the kernel did not have the policy before it, for example after a restart of the machine',
        );
    },
  };
}
