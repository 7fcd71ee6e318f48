import type { Grants } from '#dataplane/grants/grants.js';
import { type Image, layout } from '#dataplane/program/layout.js';
import type { Program } from '#policy/program.js';
import { awaitGracePeriod } from './grace-period.js';
import type { Slots } from './slots.js';

type Loaded = { readonly slots: Slots; readonly grants: Grants };

/** Fills the idle slot and writes the names of its program. Throws `CapacityExceeded` before anything changed. */
export function stageProgram(
  { slots, grants }: Loaded,
  program: Program,
  generation: number,
): { readonly image: Image; readonly imageSha256: string } {
  const image = layout(program);
  const patterns = program.names.map(({ text }) => text);
  grants.makeRoom(patterns, awaitGracePeriod);
  const imageSha256 = slots.fill(image, generation);
  // Only now does nobody read the names of the program that was in this slot.
  grants.fill(slots.idleSlot, patterns);
  return { image, imageSha256 };
}

/** Puts what is staged in force, and answers its epoch. */
export function flipProgram({ slots, grants }: Loaded): number {
  const filled = slots.idleSlot;
  const epoch = slots.flip();
  grants.activated(filled);
  return epoch;
}
