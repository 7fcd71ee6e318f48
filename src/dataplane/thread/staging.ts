import type { Program } from '#contracts/program.js';
import type { Slots } from '#dataplane/activate/slots.js';
import type { Placement } from '#dataplane/flows/hits.js';
import type { TrafficStatistics } from '#dataplane/flows/traffic-statistics.js';
import type { Grants } from '#dataplane/grants/grants.js';
import { type Image, layout } from '#dataplane/image/program-image.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';

type Loaded = {
  readonly slots: Slots;
  readonly grants: Grants;
  readonly trafficStatistics: TrafficStatistics;
  /** Called between parts of long work, to serve other requests; the function may add grants. */
  readonly yieldToRequests?: () => void;
};

/** The image of a compiled policy, and the entries of the map `hits` for its ranks. */
type Prepared = { readonly image: Image; readonly placement: Placement };

/**
 * Fills the idle slot with a compiled policy: its image, its pattern names, and the entries of `hits` for its
 * ranks. Throws `CapacityExceeded` before it changes anything.
 */
export function stageProgram(
  { slots, grants, trafficStatistics, yieldToRequests }: Loaded,
  program: Program,
  generation: number,
  { image, placement }: Prepared = { image: layout(program), placement: trafficStatistics.find(program.ruleNames) },
): void {
  trafficStatistics.check(placement);
  const patterns = program.names.map(({ text }) => text);
  grants.makeRoom(patterns, awaitGracePeriod);
  trafficStatistics.flushIdleSlot();
  slots.fill(image, generation);
  // This call must come after `slots.fill`, which waits until no packet reads the pattern names of the former
  // policy in this slot.
  grants.fill(slots.idleSlot, patterns, yieldToRequests);
  // This call must come after `flushIdleSlot`, which makes sure that no flow is counted by the former ranks
  // of this slot.
  trafficStatistics.stage(placement, generation);
}

/** Puts the staged policy in force. Returns the new epoch. */
export function flipProgram({ slots, grants, trafficStatistics }: Loaded): number {
  const filled = slots.idleSlot;
  trafficStatistics.expectFlip();
  const epoch = slots.flip();
  grants.activated(filled);
  trafficStatistics.ruleNameHistory.flip(epoch);
  return epoch;
}
