import { isLinkLocal } from '#addresses/ip-address.js';
import { matchesInterface } from '#contracts/datapath/datapath-options.js';
import type { AddressOf, Family } from '#contracts/policy/policy-model.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { check } from '#libc/libc.js';
import type { Interface } from './interfaces.js';
import type { Link } from './netlink-interfaces.js';

/** Layout of `struct port` in `bpf/weir.h`; a test compares it with the BTF of the BPF object. */
export const PORT_OFFSETS = {
  bridge: 0,
  mac: 4,
  has_routes: 10,
  policed: 11,
  addresses: 12,
  has_ipv6_routes: 44,
  has_router: 45,
  ipv6_addresses: 48,
} as const;
export const PORT_ADDRESSES = 8;
export const PORT_BYTES = 176;

/** A policed bridge port. `addresses` are those of the bridge. */
export type BridgePort = {
  readonly ifindex: number;
  readonly bridge: Link;
  /**
   * For each family, whether the bridge has an address that hosts reach through routers, or a route. Routes
   * then show which source addresses are behind the bridge.
   */
  readonly hasRoutes: Readonly<Record<Family, boolean>>;
  /** Whether the bridge itself is policed. */
  readonly isPoliced: boolean;
  /** Whether IPv6 routers and DHCPv6 servers may be behind the port. */
  readonly hasRouter: boolean;
  readonly addresses: { readonly [F in Family]: readonly AddressOf<F>[] };
};

/** The addresses of interfaces, and for each IP family whether a route uses the interface. */
export type RoutesOfLinks = {
  readonly addressesOf: (ifindex: number) => BridgePort['addresses'];
  readonly hasRoute: (ifindex: number, family: Family) => boolean;
};

/**
 * Returns the policed interfaces that are ports of a bridge in this network namespace. `routerPorts`: names
 * or patterns of the ports behind which IPv6 routers may be.
 */
export function bridgePortsOf(
  policed: readonly Interface[],
  links: readonly Link[],
  routerPorts: readonly string[],
  { addressesOf, hasRoute }: RoutesOfLinks,
): BridgePort[] {
  return policed.flatMap(({ name, ifindex }) => {
    const master = links.find((link) => link.ifindex === ifindex)?.master ?? 0;
    const bridge = links.find((link) => link.ifindex === master && link.kind === 'bridge');
    if (bridge === undefined) return [];
    const addresses = addressesOf(master);
    const isRouted = addresses.ipv6.some((address) => !isLinkLocal(address));
    return [
      {
        ifindex,
        bridge,
        hasRoutes: {
          ipv4: addresses.ipv4.length > 0 || hasRoute(master, 'ipv4'),
          ipv6: isRouted || hasRoute(master, 'ipv6'),
        },
        hasRouter: matchesInterface(routerPorts, name),
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

function encodePort({ bridge, hasRoutes, isPoliced, hasRouter, addresses }: BridgePort): Uint8Array {
  const bytes = new Uint8Array(PORT_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(PORT_OFFSETS.bridge, bridge.ifindex, true);
  bytes.set(bridge.mac, PORT_OFFSETS.mac);
  view.setUint8(PORT_OFFSETS.has_routes, hasRoutes.ipv4 ? 1 : 0);
  view.setUint8(PORT_OFFSETS.has_ipv6_routes, hasRoutes.ipv6 ? 1 : 0);
  view.setUint8(PORT_OFFSETS.has_router, hasRouter ? 1 : 0);
  view.setUint8(PORT_OFFSETS.policed, isPoliced ? 1 : 0);
  for (const [index, address] of addresses.ipv4.slice(0, PORT_ADDRESSES).entries()) {
    view.setUint32(PORT_OFFSETS.addresses + 4 * index, address, true);
  }
  for (const [index, address] of addresses.ipv6.slice(0, PORT_ADDRESSES).entries()) {
    view.setBigUint64(PORT_OFFSETS.ipv6_addresses + 16 * index, BigInt.asUintN(64, address), true);
    view.setBigUint64(PORT_OFFSETS.ipv6_addresses + 16 * index + 8, address >> 64n, true);
  }
  return bytes;
}

function u32(value: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(value).buffer);
}
