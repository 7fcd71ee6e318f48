import type { Program } from '#contracts/program.js';
import type { Slots } from '#dataplane/activate/slots.js';
import type { Placement } from '#dataplane/flows/hits.js';
import type { Accounts } from '#dataplane/flows/traffic-statistics.js';
import type { Grants } from '#dataplane/grants/grants.js';
import { type Image, layout } from '#dataplane/image/program-image.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';

type Loaded = { readonly slots: Slots; readonly grants: Grants; readonly accounts: Accounts };

/** A program as it stands in a slot, and where its ranks count. */
type Prepared = { readonly image: Image; readonly placement: Placement };

/**
 * Fills the idle slot: its image, the names of its program, and where its ranks count. Throws `CapacityExceeded` before
 * anything changed.
 */
export function stageProgram(
  { slots, grants, accounts }: Loaded,
  program: Program,
  generation: number,
  { image, placement }: Prepared = { image: layout(program), placement: accounts.find(program.roster) },
): void {
  accounts.check(placement);
  const patterns = program.names.map(({ text }) => text);
  grants.makeRoom(patterns, awaitGracePeriod);
  accounts.settle();
  slots.fill(image, generation);
  // Only now does nobody read the names of the program that was in this slot.
  grants.fill(slots.idleSlot, patterns);
  // Nor does anything count for whom the ranks of this slot said before.
  accounts.stage(placement, generation);
}

/** Puts what is staged in force, and answers its epoch. */
export function flipProgram({ slots, grants, accounts }: Loaded): number {
  const filled = slots.idleSlot;
  accounts.expectFlip();
  const epoch = slots.flip();
  grants.activated(filled);
  accounts.rosters.flip(epoch);
  return epoch;
}
