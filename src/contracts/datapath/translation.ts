import type { Address } from '#contracts/policy/policy-model.js';

/** An address in host byte order, and a port; for an ICMP query, the port is the ICMP identifier. */
export type End<A extends Address = number> = { readonly address: A; readonly port: number };

/**
 * The addresses and ports by which each end of a flow knows the other end, on a node with NAT (D17b).
 * `source`: the client after SNAT, as the server receives it. `destination`: the server before DNAT, as the
 * client sends it.
 */
export type Translation = { readonly source: End; readonly destination: End };

export type DestinationTranslation = {
  /** Whether the destination is a service address in the setting `dataplane.translated`. */
  readonly isService: boolean;
  /** The destination after DNAT; null if conntrack has no connection for the packet. */
  readonly real: End | null;
};
