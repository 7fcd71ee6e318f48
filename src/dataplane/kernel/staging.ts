import { type Image, layout } from '#dataplane/program/layout.js';
import type { Program } from '#policy/program.js';
import type { Accounts } from './accounts.js';
import type { Slots } from './slots.js';

type Loaded = { readonly slots: Slots; readonly accounts: Accounts };

/** Fills the idle slot: its image, and where its ranks count. Throws `CapacityExceeded` before anything changed. */
export function stageProgram(
  { slots, accounts }: Loaded,
  program: Program,
  generation: number,
): { readonly image: Image; readonly imageSha256: string } {
  const image = layout(program);
  const placement = accounts.place(program.roster);
  const imageSha256 = slots.fill(image, generation);
  // Only now does no packet read what the ranks of this slot counted in before.
  accounts.stage(placement, generation);
  return { image, imageSha256 };
}

/** Puts what is staged in force, and answers its epoch. */
export function flipProgram({ slots, accounts }: Loaded): number {
  const epoch = slots.flip();
  accounts.rosters.flip(epoch);
  return epoch;
}
