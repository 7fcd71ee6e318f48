/** A program slot: a place for one compiled policy in the map `program`. */
export type Slot = 0 | 1 | 2;
export const SLOTS: readonly Slot[] = [0, 1, 2];
/** The number of program slots of a new datapath, and the number while a slot keeps a base (`base.ts`). */
export const SLOT_COUNT = { usual: 2, withBase: 3 } as const;

/** The largest epoch (activation number); see MAX_EPOCH of `bpf/weir.h`. */
const MAX_EPOCH = 0x1fff_ffff;
/** The bit of an active word that selects slot 2; see THIRD_SLOT of `bpf/weir.h`. */
const THIRD_SLOT = 0x4000_0000;

/** Returns the slot that an active word of the map `active` selects. */
export function slotOf(word: number): Slot {
  return (word & THIRD_SLOT) !== 0 ? 2 : (word & 1) === 0 ? 0 : 1;
}

/** Returns the epoch of an active word, also of the upper half of the judgement of a flow. */
export function epochOf(word: number): number {
  return (word >>> 1) & MAX_EPOCH;
}

export function wordOf(epoch: number, slot: Slot): number {
  return (slot === 2 ? THIRD_SLOT : 0) + epoch * 2 + (slot & 1);
}

/** Returns the epoch that is `steps` activations after `epoch`. After the largest epoch, begins again. */
export function epochAfter(epoch: number, steps: number): number {
  return epoch + steps > MAX_EPOCH ? steps : epoch + steps;
}
