/**
 * Field offsets, sizes and enum values of `bpf/weir.h`. A test compares these numbers and names with the BTF
 * of the BPF object. There, `join` stands for the offload of a spliced connection to the datapath, and a
 * `joiner` is an offloader: an earlier build may have pinned maps with these names.
 */
export const SPLICE_KEY = { source: 0, destination: 4, source_port: 8, destination_port: 10 } as const;
export const SPLICE_KEY_BYTES = 12;
export const SPLICE_ENTRY = {
  state: 0,
  joiner: 4,
  id: 8,
  sequence: 12,
  acknowledgment: 16,
  time: 20,
  echo: 24,
  window_shift: 28,
  ends: 32,
  ifindex: 36,
  hop: 40,
  next: 44,
  acknowledged: 48,
  window: 52,
  stamp: 56,
  last_seen: 60,
} as const;
export const SPLICE_ENTRY_BYTES = 64;
export const SPLICE_STATE = { quiet: 1, held: 2, joined: 3 } as const;
/**
 * Return values of the BPF program `weir_join`, which stops the packets of a connection before its offload
 * (`enum joined` of `bpf/weir.h`).
 */
export const HOLD_RESULT = { at_rest: 0, busy: 1, gone: 2, unable: 3 } as const;
/** Bits of the field `ends` of `struct join`: this direction ended by a FIN, or the connection was reset. */
export const ENDS = { ended: 1, reset: 2 } as const;
export const MAX_OFFLOADERS = 64;
/** log2 of the unit of `last_seen` in nanoseconds: 2^20 ns. `last_seen` has 32 bits and wraps to 0. */
export const TICK_SHIFT = 20n;
