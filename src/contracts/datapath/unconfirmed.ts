/**
 * A policy that waits for its confirmation. `before`: the generation of the last confirmed policy (the base).
 * `reverts`: the generation that the base gets when it comes into force again. `atNs`: the time when the
 * kernel reverts to the base, in nanoseconds of the monotonic clock (`process.hrtime.bigint()`).
 */
export type Unconfirmed = { readonly before: number; readonly reverts: number; readonly atNs: bigint };

/**
 * The state of a policy in the store. `isStored`: the store has committed the policy, so that it replaces any
 * other policy. If false, for example in a dry run, the last confirmed policy (base) of an unconfirmed policy
 * must stay in the kernel. `unconfirmed`: null if the policy needs no confirmation.
 */
export type Standing = { readonly isStored: boolean; readonly unconfirmed: Unconfirmed | null };
export const STORED: Standing = { isStored: true, unconfirmed: null };

/**
 * The last confirmed policy (base), which the kernel keeps while a newer policy is unconfirmed. `generation`:
 * the generation that it has after the revert. `hasReverted`: the kernel has reverted to it.
 */
export type KeptBase = { readonly generation: number; readonly atNs: bigint; readonly hasReverted: boolean };
