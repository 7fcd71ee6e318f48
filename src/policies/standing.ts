import { firstValueFrom } from 'rxjs';
import type { KeptBase, Standing, Unconfirmed } from '#contracts/datapath/unconfirmed.js';
import type { PendingChange } from '#contracts/policy/pending-change.js';
import type { ChangeDeadline, PolicyStore } from '#store/store-types.js';

/**
 * The time in milliseconds between the deadline of an unconfirmed change and the revert by the kernel. A
 * running process reverts at the deadline itself.
 */
export const KERNEL_MARGIN_MS = 500;
const NS_PER_MS = 1e6;

/** Returns the generation that the former policy gets when this change is reverted. */
export function revertsAs({ generation }: PendingChange): number {
  return generation + 1;
}

class Outdated extends Error {
  readonly code = 'outdated';
  override readonly name = 'Outdated';
}

/**
 * Returns the state (stored, unconfirmed) of the policy with this generation, on a single node. Throws if the
 * store has another policy by now, because this policy must then not come into force.
 */
export async function standingOf(policies: PolicyStore, generation: number): Promise<Standing> {
  const { generation: enforced } = await policies.enforced();
  if (generation < enforced)
    throw new Outdated(`put generation ${generation} in force: the store has generation ${enforced} meanwhile`);
  const deadline = await firstValueFrom(policies.deadline);
  const isUnconfirmed = deadline?.change.generation === generation;
  return {
    isStored: generation === enforced,
    unconfirmed: isUnconfirmed ? unconfirmedOf(deadline) : null,
  };
}

function unconfirmedOf({ change, atMs }: ChangeDeadline): Unconfirmed {
  const leftNs = Math.round((atMs + KERNEL_MARGIN_MS - performance.now()) * NS_PER_MS);
  const atNs = process.hrtime.bigint() + BigInt(leftNs);
  return { before: change.before.generation, reverts: revertsAs(change), atNs };
}

/** Returns the deadline in the kernel of an unconfirmed change, in milliseconds of `performance.now()`. */
export function deadlineOf({ atNs }: KeptBase): number {
  return performance.now() + Number(atNs - process.hrtime.bigint()) / NS_PER_MS - KERNEL_MARGIN_MS;
}
