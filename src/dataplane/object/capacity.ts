import { CapacityExceeded } from '#contracts/datapath.js';

/**
 * Sizes of the maps that hold the policy. They grow in tiers and never shrink; only `weir dataplane detach`
 * resets them.
 */
export type Capacity = {
  /** Lines of 64 bytes in each of two slots. */
  readonly slotLines: number;
  /** Ranks in each of two slots, 4 bytes each. */
  readonly rankCapacity: number;
  /** Entries of 32 bytes. */
  readonly hitCapacity: number;
};

/** The largest slot: the verifier allows an offset of 512 MiB from the first line. */
export const MAX_SLOT_LINES = 8_388_608;
/** 1 MiB, 8 MiB, 64 MiB, 512 MiB and 1 GiB for both slots. */
const LINES = [8_192, 65_536, 524_288, 4_194_304, MAX_SLOT_LINES];
/** 64 KiB to 16 MiB. */
const RANKS = [8_192, 65_536, 524_288, 2_097_152];
/** 256 KiB to 64 MiB. Rules of earlier policies keep their entries as long as there is room. */
const HITS = [8_192, 65_536, 524_288, 2_097_152];

export function smallestCapacity(programCapacity: number): Capacity {
  return capacityFor({ lines: 1, ranks: 1, hits: 1 }, undefined, programCapacity);
}

/**
 * The space that a policy needs. `hits` counts entries, including those that rules of earlier policies keep.
 */
export type Need = { readonly lines: number; readonly ranks: number; readonly hits: number };

/**
 * The tiers that hold `need`, none below `present`. Throws `CapacityExceeded` if a policy has more lines than
 * `programCapacity`. Rules beyond the largest tiers of ranks and hits are enforced, but their hits are not
 * counted.
 */
export function capacityFor(need: Need, present: Capacity | undefined, programCapacity: number): Capacity {
  const limit = Math.max(programCapacity, present?.slotLines ?? 0);
  if (need.lines > limit) throw new CapacityExceeded('program', need.lines, limit);
  const slotLines = Math.min(tier(LINES, need.lines), limit);
  return {
    slotLines: Math.max(slotLines, present?.slotLines ?? 0),
    rankCapacity: Math.max(tier(RANKS, need.ranks), present?.rankCapacity ?? 0),
    hitCapacity: Math.max(tier(HITS, need.hits), present?.hitCapacity ?? 0),
  };
}

function tier(tiers: readonly number[], need: number): number {
  return tiers.find((size) => size >= need) ?? Math.max(...tiers);
}
