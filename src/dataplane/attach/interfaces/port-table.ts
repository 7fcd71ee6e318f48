import { libbpf } from '#libc/bpf/libbpf.js';
import { check } from '#libc/libc.js';
import type { Interface } from './interfaces.js';
import type { Link } from './netlink-interfaces.js';

/** Layout of `struct port` in `bpf/weir.h`; a test compares it with the BTF of the BPF object. */
export const PORT_OFFSETS = { bridge: 0, mac: 4, has_routes: 10, policed: 11, addresses: 12 } as const;
export const PORT_ADDRESSES = 8;
export const PORT_BYTES = 44;

/** A policed bridge port. `addresses` are the IPv4 addresses of the bridge as 32-bit numbers. */
export type BridgePort = {
  readonly ifindex: number;
  readonly bridge: Link;
  /**
   * Whether the bridge has an IPv4 address or a route, so that routes show which source addresses are behind
   * the bridge.
   */
  readonly hasRoutes: boolean;
  /** Whether the bridge itself is policed. */
  readonly isPoliced: boolean;
  readonly addresses: readonly number[];
};

/** The IPv4 addresses of interfaces, and whether a route uses an interface. */
export type RoutesOfLinks = {
  readonly addressesOf: (ifindex: number) => readonly number[];
  readonly hasRoute: (ifindex: number) => boolean;
};

/** Returns the policed interfaces that are ports of a bridge in this network namespace. */
export function bridgePortsOf(
  policed: readonly Interface[],
  links: readonly Link[],
  { addressesOf, hasRoute }: RoutesOfLinks,
): BridgePort[] {
  return policed.flatMap(({ ifindex }) => {
    const master = links.find((link) => link.ifindex === ifindex)?.master ?? 0;
    const bridge = links.find((link) => link.ifindex === master && link.kind === 'bridge');
    if (bridge === undefined) return [];
    const addresses = addressesOf(master);
    return [
      {
        ifindex,
        bridge,
        hasRoutes: addresses.length > 0 || hasRoute(master),
        isPoliced: policed.some((found) => found.ifindex === master),
        addresses,
      },
    ];
  });
}

/** Makes the map `ports` contain exactly these bridge ports. */
export function writePorts(mapFd: number, ports: readonly BridgePort[]): void {
  const kept = new Set(ports.map(({ ifindex }) => ifindex));
  for (const port of ports) {
    check('write ports', libbpf().bpf_map_update_elem(mapFd, u32(port.ifindex), encodePort(port), 0));
  }
  for (const ifindex of keysOf(mapFd)) {
    if (!kept.has(ifindex)) libbpf().bpf_map_delete_elem(mapFd, u32(ifindex));
  }
}

function keysOf(mapFd: number): number[] {
  const keys: number[] = [];
  const key = new Uint8Array(4);
  for (let from: Uint8Array | null = null; libbpf().bpf_map_get_next_key(mapFd, from, key) >= 0; from = key) {
    keys.push(new DataView(key.buffer).getUint32(0, true));
  }
  return keys;
}

function encodePort({ bridge, hasRoutes, isPoliced, addresses }: BridgePort): Uint8Array {
  const bytes = new Uint8Array(PORT_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(PORT_OFFSETS.bridge, bridge.ifindex, true);
  bytes.set(bridge.mac, PORT_OFFSETS.mac);
  view.setUint8(PORT_OFFSETS.has_routes, hasRoutes ? 1 : 0);
  view.setUint8(PORT_OFFSETS.policed, isPoliced ? 1 : 0);
  for (const [index, address] of addresses.slice(0, PORT_ADDRESSES).entries()) {
    view.setUint32(PORT_OFFSETS.addresses + 4 * index, address, true);
  }
  return bytes;
}

function u32(value: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(value).buffer);
}
