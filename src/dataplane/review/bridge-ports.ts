import { readFileSync } from 'node:fs';
import type { Family } from '#contracts/policy/policy-model.js';
import type { Interface } from '#dataplane/attach/interfaces/interfaces.js';
import type { Link } from '#dataplane/attach/interfaces/netlink-interfaces.js';
import { type BridgePort, PORT_ADDRESSES } from '#dataplane/attach/interfaces/port-table.js';
import type { ThirdPartyHook } from '#dataplane/forwarding/third-party-hooks.js';

/**
 * Kinds of interfaces that take frames from their lower interface: those frames that are addressed to their
 * own MAC or IP address.
 */
const TAPS: ReadonlySet<string> = new Set(['macvlan', 'macvtap', 'ipvlan', 'ipvtap']);

/**
 * Returns one fault (a sentence for the operator) for each policed interface whose frames another interface
 * takes over. `bridged` are the ports of bridges that the datapath polices. `receivers` are kernel functions
 * that take over the frames of an interface, such as those of a bond.
 */
export function portFaults(
  policed: readonly Interface[],
  links: readonly Link[],
  receivers: readonly ThirdPartyHook[],
  bridged: readonly Pick<BridgePort, 'ifindex'>[] = [],
): string[] {
  return policed.flatMap(({ name, ifindex }) => {
    if (bridged.some((port) => port.ifindex === ifindex)) return [];
    const link = links.find((found) => found.ifindex === ifindex);
    if (link !== undefined && link.master !== 0) {
      const master = links.find((found) => found.ifindex === link.master);
      const called = master === undefined ? 'another interface' : `${master.kind} ${master.name}`.trim();
      const instead = master?.name ?? 'that interface';
      return [
        `${name} is a port of ${called}: put ${instead} into dataplane.interfaces instead, or remove ${name} from it`,
      ];
    }
    const taps = links.filter(({ lower, kind }) => lower === ifindex && TAPS.has(kind));
    if (taps.length > 0) {
      return [
        `${name} gives frames to ${taps.map((tap) => `${tap.kind} ${tap.name}`).join(', ')} before the datapath sees them: remove it`,
      ];
    }
    const receiver = receivers.find(({ kind, id }) => kind === 'receiver' && id === ifindex);
    return receiver === undefined ? [] : [`${name} gives frames to ${receiver.symbol} before the datapath sees them`];
  });
}

/**
 * Returns one fault (a reason why Weir cannot police) for each bridge with policed ports whose routed packets
 * the guard (Weir's nftables rules) does not cover: the guard sees these packets by the name of the bridge.
 * `families` are those to which policies apply.
 */
export function routingBridgeFaults(
  bridged: readonly BridgePort[],
  families: readonly Family[],
  forwards: (name: string) => boolean,
): string[] {
  const isRouted = ({ hasRoutes }: BridgePort): boolean => families.some((family) => hasRoutes[family]);
  return namesOf(bridged.filter((port) => isRouted(port) && !port.isPoliced))
    .filter(forwards)
    .map(
      (name) =>
        `the node routes packets of bridge ${name}, whose ports are policed: add ${name} to dataplane.interfaces`,
    );
}

/** Returns a fault for each bridge that has more addresses than the datapath can compare with a source. */
export function addressFaults(bridged: readonly BridgePort[], families: readonly Family[]): string[] {
  const names: Readonly<Record<Family, string>> = { ipv4: 'IPv4', ipv6: 'IPv6' };
  return families.flatMap((family) =>
    namesOf(bridged.filter(({ addresses }) => addresses[family].length > PORT_ADDRESSES)).map(
      (name) => `bridge ${name} has more than ${PORT_ADDRESSES} ${names[family]} addresses: remove some`,
    ),
  );
}

/**
 * Returns warnings about bridges with policed ports. The policy does not apply to frames of other ports.
 * Frames that a bridge switches do not reach the sockets of the DNS proxy and the service plane. The ingress
 * hook drops tagged frames.
 */
export function bridgeWarnings(bridged: readonly BridgePort[], links: readonly Link[], diverts: boolean): string[] {
  const open = links.filter(
    ({ ifindex, master }) =>
      bridged.some(({ bridge }) => bridge.ifindex === master) && !bridged.some((port) => port.ifindex === ifindex),
  );
  const names = open.map(({ name }) => name).toSorted();
  const unpoliced = `${names.join(', ')}: a policed bridge switches its frames without a policy, because dataplane.interfaces does not contain it`;
  const switched = `bridge ${namesOf(bridged).join(', ')} switches packets, which are neither inspected nor sent to the DNS proxy: rules with tls drop them`;
  const filtering = namesOf(bridged.filter(({ bridge }) => bridge.filtersVlans));
  return [
    ...(names.length > 0 ? [unpoliced] : []),
    ...(diverts && bridged.length > 0 ? [switched] : []),
    ...filtering.map((name) => `bridge ${name} filters VLANs (vlan_filtering): its policed ports drop tagged frames`),
  ];
}

/**
 * Returns the indexes of the ports whose switched packets the kernel gives to the netfilter hooks of IPv4
 * (`br_netfilter`).
 */
export function portsWithNetfilter(bridged: readonly BridgePort[]): number[] {
  const forAll = bridged.length > 0 && callsIptablesForAll();
  return bridged.filter(({ bridge }) => forAll || bridge.callsIptables).map(({ ifindex }) => ifindex);
}

function callsIptablesForAll(): boolean {
  try {
    return readFileSync('/proc/sys/net/bridge/bridge-nf-call-iptables', 'utf8').trim() === '1';
  } catch {
    // The file does not exist: the module br_netfilter is not loaded.
    return false;
  }
}

function namesOf(bridged: readonly BridgePort[]): string[] {
  return [...new Set(bridged.map(({ bridge }) => bridge.name))];
}
