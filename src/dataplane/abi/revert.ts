/** Offsets in bytes of the fields of `struct revert` of `bpf/maps.h`. */
export const REVERT_OFFSETS = { at_ns: 16, reverted_ns: 24, slot: 32 } as const;
export const REVERT_BYTES = 40;

/** Offsets in bytes of the fields of `struct revert_request` of `bpf/weir.h`. */
export const REVERT_REQUEST_OFFSETS = { at_ns: 0, slot: 8 } as const;
export const REVERT_REQUEST_BYTES = 16;
