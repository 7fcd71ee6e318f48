/** Layout of `struct port` in `bpf/weir.h`; a test compares it with the BTF of the BPF object. */
export const PORT_OFFSETS = { bridge: 0, mac: 4, has_routes: 10, policed: 11, addresses: 12 } as const;
export const PORT_ADDRESSES = 8;
export const PORT_BYTES = 44;
