import { firstValueFrom } from 'rxjs';
import type { NodeHealth } from '#cluster/rollout/rollout-health.js';
import type { Rollouts } from '#cluster/rollout/rollouts.js';
import type { ChangeEnd, PendingChange, RevertedChange } from '#contracts/policy/pending-change.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
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
   * Records the generation that the kernel enforced when the process started. If an earlier process reverted
   * the pending change at this node alone, this process does the same.
   */
  adopted(generation: number): Promise<void>;
};

type Ports = {
  readonly policies: PolicyStore;
  /** The roll-outs of the cluster; null on a single node. */
  readonly rollouts: Rollouts | null;
  /** Waits until this node enforces the policy of a generation. Returns false after `withinMs`. */
  readonly reaches: (generation: number, withinMs: number) => Promise<boolean>;
  readonly now: () => Date;
};

const ENFORCE_MS = 10_000;
const NONE = refusal('not_found', 'no policy change is pending');

export function pendingChangesOver({ policies, rollouts, reaches, now }: Ports): PendingChanges {
  const present = () => firstValueFrom(policies.pending);
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
        } catch (failure) {
          if (!(failure instanceof StoreError) || failure.code !== 'revision_conflict') throw failure;
          return refusal('write_conflict', failure.message);
        }
        return { ...ended, isEnforced: await reaches(await policies.generation(), ENFORCE_MS) };
      }),
    adopted: async (generation) => {
      const change = await present();
      if (change !== null && generation === change.generation + 1) policies.revertHere(change.id);
    },
  };
}
