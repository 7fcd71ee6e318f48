import { readFileSync } from 'node:fs';
import type { Interface } from '#dataplane/attach/interfaces/interfaces.js';
import type { Link } from '#dataplane/attach/interfaces/netlink-interfaces.js';
import { interfaceAddresses } from '#dataplane/routes/addresses.js';
import { hasRoute } from '#dataplane/routes/routes.js';
import { listed } from './listed-names.js';

/**
 * Returns at most two warnings: one for Ethernet interfaces, and one for other interfaces. The warnings name
 * the interfaces that Weir does not police although the node forwards their IPv4 packets (D17b). For a port
 * of a VRF, the warning names the VRF, because Weir polices the port by that name.
 */
export function unnamedWarnings(policed: readonly Interface[], links: readonly Link[]): string[] {
  const isPoliced = (index: number): boolean => policed.some(({ ifindex }) => ifindex === index);
  const vrfs = new Map(links.flatMap(({ kind, ifindex, name }) => (kind === 'vrf' ? [[ifindex, name] as const] : [])));
  const candidates = links.filter(
    (link) =>
      link.isUp &&
      !link.isLoopback &&
      (link.master === 0 || vrfs.has(link.master)) &&
      !isPoliced(link.ifindex) &&
      !isPoliced(link.master) &&
      !isCutOff(link, policed) &&
      forwards(link.name),
  );
  if (candidates.length === 0) return [];
  const addressed = interfaceAddresses();
  const forwarding = candidates.filter(({ ifindex }) => addressed.has(ifindex) || hasRoute(ifindex));
  const names = forwarding.filter(({ isEthernet }) => isEthernet).map(({ name, master }) => vrfs.get(master) ?? name);
  const others = forwarding.filter(({ isEthernet }) => !isEthernet).map(({ name }) => name);
  return [
    ...sentences(names, 'dataplane.interfaces does not contain it'),
    ...sentences(others, 'the datapath supports only Ethernet'),
  ];
}

function sentences(names: readonly string[], reason: string): string[] {
  if (names.length === 0) return [];
  return [`the node forwards packets from ${listed([...new Set(names)])} without a policy: ${reason}`];
}

function forwards(name: string): boolean {
  return forwardsFamily('ipv4', name);
}

/** Returns whether the node forwards IPv4 or IPv6 packets that arrive on an interface. */
export function forwardsAny(name: string): boolean {
  return forwardsFamily('ipv4', name) || forwardsFamily('ipv6', name);
}

function forwardsFamily(family: 'ipv4' | 'ipv6', name: string): boolean {
  try {
    return readFileSync(`/proc/sys/net/${family}/conf/${name}/forwarding`, 'utf8').trim() === '1';
  } catch {
    // The file is missing if the interface was removed after `listLinks` read it.
    return false;
  }
}

/**
 * Returns one fault (a reason why Weir cannot police) for each policed interface with VLAN interfaces on top.
 * The ingress hook of such an interface sees the frames before the kernel takes their tag off, and drops them
 * in every mode (D17). So the VLAN interfaces receive nothing, policed or not.
 */
export function vlanFaults(policed: readonly Interface[], links: readonly Link[]): string[] {
  return policed.flatMap(({ name, ifindex }) => {
    const vlans = links.filter(({ kind, lower, isUp }) => kind === 'vlan' && lower === ifindex && isUp);
    if (vlans.length === 0) return [];
    const names = listed(vlans.map((vlan) => vlan.name));
    return [
      `${name} drops the tagged frames of ${names}: put ${names} into dataplane.interfaces instead of ${name}, or remove the VLAN`,
    ];
  });
}

/** Returns whether a policed interface drops all frames of this VLAN interface. */
export function isCutOff({ kind, lower }: Link, policed: readonly Interface[]): boolean {
  return kind === 'vlan' && policed.some(({ ifindex }) => ifindex === lower);
}
