import { largest } from '#arrays/extremes.js';
import { CapacityExceeded } from '#contracts/datapath/datapath.js';
import { SLOT_COUNT } from '#dataplane/abi/active-word.js';

/**
 * Sizes of the BPF maps that contain the compiled policy. Each size grows in steps and never shrinks. After
 * `weir dataplane detach`, the next start begins with the smallest sizes.
 */
export type Capacity = {
  /** Number of program slots; see `SLOT_COUNT`. */
  readonly slotCount: number;
  /** Number of cache lines (64 bytes) in each program slot. */
  readonly slotLines: number;
  /**
   * Number of ranks (rules and defaults of a policy) for which `rank_hits` has room, in each program slot; a
   * rank takes 8 bytes.
   */
  readonly rankCapacity: number;
  /** Number of entries of the map `hits`, of 32 bytes each. */
  readonly hitCapacity: number;
};

/**
 * Maximum number of cache lines in one program slot: the BPF verifier allows offsets of up to 512 MiB from
 * the first line.
 */
export const MAX_SLOT_LINES = 8_388_608;
/**
 * Possible values of `slotLines`. The map `program` with two program slots then takes 1 MiB, 8 MiB, 64 MiB,
 * 512 MiB or 1 GiB.
 */
const LINES = [8_192, 65_536, 524_288, 4_194_304, MAX_SLOT_LINES];
/**
 * Possible values of `rankCapacity`. The part of `rank_hits` for one program slot then takes 64 KiB to 16
 * MiB.
 */
const RANKS = [8_192, 65_536, 524_288, 2_097_152];
/**
 * Possible values of `hitCapacity`. The map `hits` then takes 256 KiB to 64 MiB. Rules of earlier policies
 * keep their entries in `hits` until the map is full.
 */
const HITS = [8_192, 65_536, 524_288, 2_097_152];

export function smallestCapacity(programCapacity: number): Capacity {
  return capacityFor({ slots: SLOT_COUNT.usual, lines: 1, ranks: 1, hits: 1 }, undefined, programCapacity);
}

/**
 * The sizes that a policy needs: program slots, cache lines and ranks (rules and defaults) in one slot, and
 * entries of the map `hits`. `hits` includes the entries that rules of earlier policies keep.
 */
export type Need = { readonly slots: number; readonly lines: number; readonly ranks: number; readonly hits: number };

/**
 * Returns the smallest step of each size that has room for `need` and is not below `present`. Throws
 * `CapacityExceeded` if the policy needs more cache lines than `programCapacity` and than `present` has. If
 * the policy needs more ranks or hits than the largest step has, returns the largest step.
 */
export function capacityFor(need: Need, present: Capacity | undefined, programCapacity: number): Capacity {
  const limit = Math.max(programCapacity, present?.slotLines ?? 0);
  if (need.lines > limit) throw new CapacityExceeded('program', need.lines, limit);
  const slotLines = Math.min(tier(LINES, need.lines), limit);
  return {
    slotCount: Math.max(need.slots, present?.slotCount ?? 0),
    slotLines: Math.max(slotLines, present?.slotLines ?? 0),
    rankCapacity: Math.max(tier(RANKS, need.ranks), present?.rankCapacity ?? 0),
    hitCapacity: Math.max(tier(HITS, need.hits), present?.hitCapacity ?? 0),
  };
}

function tier(tiers: readonly number[], need: number): number {
  return tiers.find((size) => size >= need) ?? largest(tiers);
}
