/** A program slot: a place for one compiled policy in the map `program`. */
export type Slot = 0 | 1 | 2;
export const SLOTS: readonly Slot[] = [0, 1, 2];
/**
 * The number of program slots: `usual` for a new datapath, `withBase` while a slot keeps the last confirmed
 * policy (base) of an unconfirmed one.
 */
export const SLOT_COUNT = { usual: 2, withBase: 3 } as const;

/** The largest epoch (activation number); see MAX_EPOCH of `bpf/weir.h`. */
const MAX_EPOCH = 0x1fff_ffff;
/**
 * The bit of an active word (the word that selects the policy in force) for program slot 2; see THIRD_SLOT of
 * `bpf/weir.h`.
 */
const THIRD_SLOT = 0x4000_0000;

/**
 * Returns the program slot (place for a compiled policy) that an active word selects. The map `active`
 * contains this word.
 */
export function slotOf(word: number): Slot {
  return (word & THIRD_SLOT) !== 0 ? 2 : (word & 1) === 0 ? 0 : 1;
}

/**
 * Returns the epoch (activation number) of an active word. Works also for the upper half of the field
 * `judgement` of a flow.
 */
export function epochOf(word: number): number {
  return (word >>> 1) & MAX_EPOCH;
}

export function wordOf(epoch: number, slot: Slot): number {
  return (slot === 2 ? THIRD_SLOT : 0) + epoch * 2 + (slot & 1);
}

/**
 * Returns the epoch (activation number) after `steps` activations. The first epoch follows the largest one.
 */
export function epochAfter(epoch: number, steps: number): number {
  return epoch + steps > MAX_EPOCH ? steps : epoch + steps;
}
