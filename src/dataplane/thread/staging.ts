import type { Flipped } from '#contracts/datapath/datapath.js';
import type { Program } from '#contracts/policy/program.js';
import type { Slots } from '#dataplane/activate/slots.js';
import type { Placement } from '#dataplane/flows/hits/hits.js';
import type { TrafficStatistics } from '#dataplane/flows/traffic-statistics.js';
import type { MappedGrants } from '#dataplane/grants/mapped-grants.js';
import { type Image, layout } from '#dataplane/image/program-image.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import type { KernelMembers } from '#dataplane/members/kernel-members.js';

type Loaded = {
  readonly slots: Slots;
  readonly grants: MappedGrants;
  readonly members: KernelMembers;
  readonly trafficStatistics: TrafficStatistics;
  /**
   * Called between parts of the work, to serve other requests. It may add grants (permissions for addresses
   * that DNS resolved).
   */
  readonly yieldToRequests?: () => void;
};

type Prepared = { readonly image: Image; readonly placement: Placement };

/**
 * Fills the idle program slot with a compiled policy: its image, its hostname patterns, and the entries of
 * `hits` for its rules and defaults. Throws `CapacityExceeded` before it changes the slot if the policy is
 * too large.
 */
export function stageProgram(
  { slots, grants, members, trafficStatistics, yieldToRequests }: Loaded,
  program: Program,
  generation: number,
  { image, placement }: Prepared = { image: layout(program), placement: trafficStatistics.find(program.ruleNames) },
): void {
  trafficStatistics.check(placement);
  const patterns = program.names.map(({ text }) => text);
  grants.makeRoom(patterns, awaitGracePeriod);
  trafficStatistics.flushIdleSlot();
  slots.fill(image, generation);
  // Call the next two functions after `slots.fill`, which waits until no packet uses the former policy of
  // this program slot. Then no packet uses the hostname patterns and sets of selectors of that policy either.
  grants.fill(slots.filledSlot, patterns, yieldToRequests);
  members.fill(slots.filledSlot, program);
  // This call must come after `flushIdleSlot`. Before that, flows may still count for rules of the former
  // policy in this program slot.
  trafficStatistics.stage(placement, generation);
}

/** Puts the staged policy in force. `before`: the generation that was in force until now (`Slots.flip`). */
export function flipProgram({ slots, grants, members, trafficStatistics }: Loaded, before = slots.enforced()): Flipped {
  const filled = slots.filledSlot;
  trafficStatistics.expectFlip();
  const flipped = slots.flip(before);
  grants.activated(slots.usedSlots);
  members.removeLeaving();
  trafficStatistics.ruleNameHistory.flip(flipped.epoch);
  return { ...flipped, uncompiled: members.uncompiledIn(filled) };
}
