/**
 * A policy that waits for its confirmation, for the datapath. `before`: the generation of the base, the last
 * confirmed policy. `reverts`: the generation that the base gets when it comes in force again. `atNs`: when
 * the kernel reverts to the base, in nanoseconds on the monotonic clock of `process.hrtime.bigint()`.
 */
export type Unconfirmed = { readonly before: number; readonly reverts: number; readonly atNs: bigint };

/**
 * The place of a policy in the store. `isStored`: the store has committed it, so that it replaces any other
 * policy. Without it, for example in a dry run, the base of an unconfirmed policy must stay.
 */
export type Standing = { readonly isStored: boolean; readonly unconfirmed: Unconfirmed | null };
export const STORED: Standing = { isStored: true, unconfirmed: null };

/**
 * The base that the kernel keeps for an unconfirmed policy. `generation`: the generation that it has when the
 * kernel reverts to it. `hasReverted`: the kernel has done so.
 */
export type KeptBase = { readonly generation: number; readonly atNs: bigint; readonly hasReverted: boolean };
