/** Offsets in bytes of the fields of `struct hit` of `bpf/weir.h`. */
export const HIT_OFFSETS = { packets: 0, bytes: 8, last_ns: 16, identity: 24 } as const;
export const HIT_BYTES = 32;

/** Offsets in bytes of the fields of `struct hit_ref` of `bpf/weir.h`. */
export const HIT_REF_OFFSETS = { hit: 0, check: 4 } as const;
export const HIT_REF_BYTES = 8;

/**
 * Offsets in bytes of the fields of `struct vitals` of `bpf/weir.h` (results of the last sweep of the flow
 * table).
 */
export const VITALS_OFFSETS = {
  swept_ns: 0,
  sweep_took_ns: 8,
  flows: 16,
  half_open: 20,
  flow_seed: 24,
  established: 28,
} as const;
export const VITALS_BYTES = 32;
