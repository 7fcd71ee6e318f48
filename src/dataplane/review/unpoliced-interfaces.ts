import { readFileSync } from 'node:fs';
import { isLinkLocal } from '#addresses/ip-address.js';
import type { Family } from '#contracts/policy/policy-model.js';
import type { Interface } from '#dataplane/attach/interfaces/interfaces.js';
import type { Link } from '#dataplane/attach/interfaces/netlink-interfaces.js';
import { interfaceAddresses, interfaceIpv6Addresses } from '#dataplane/routes/addresses.js';
import { hasRoute } from '#dataplane/routes/routes.js';
import { listed } from './listed-names.js';

/**
 * Returns at most two warnings: one for Ethernet interfaces, and one for other interfaces. The warnings name
 * the interfaces that Weir does not police although the node forwards their packets (D17b). `families` are
 * those to which policies apply. For a port of a VRF, the warning names the VRF, because Weir polices the
 * port by that name.
 */
export function unnamedWarnings(
  policed: readonly Interface[],
  links: readonly Link[],
  families: readonly Family[] = ['ipv4'],
): string[] {
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
      families.some((family) => forwardsFamily(family, link.name)),
  );
  if (candidates.length === 0) return [];
  const [ipv4, ipv6] = [interfaceAddresses(), interfaceIpv6Addresses()];
  const hasAddress: Readonly<Record<Family, (ifindex: number) => boolean>> = {
    ipv4: (ifindex) => ipv4.has(ifindex),
    ipv6: (ifindex) => ipv6.get(ifindex)?.some((address) => !isLinkLocal(address)) === true,
  };
  const forwarding = candidates.filter(({ name, ifindex }) =>
    families.some(
      (family) => forwardsFamily(family, name) && (hasAddress[family](ifindex) || hasRoute(ifindex, family)),
    ),
  );
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

/** Returns whether the node forwards IPv4 or IPv6 packets that arrive on an interface. */
export function forwardsAny(name: string): boolean {
  return forwardsFamily('ipv4', name) || forwardsFamily('ipv6', name);
}

/**
 * Returns whether the node forwards packets of a family that arrive on an interface. For IPv6, Linux reads
 * the setting of all interfaces, and `force_forwarding` of this interface (Linux 6.17).
 */
function forwardsFamily(family: Family, name: string): boolean {
  if (family === 'ipv4') return isSet('ipv4', name, 'forwarding');
  return isSet('ipv6', 'all', 'forwarding') || isSet('ipv6', name, 'force_forwarding');
}

function isSet(family: Family, name: string, setting: string): boolean {
  try {
    return readFileSync(`/proc/sys/net/${family}/conf/${name}/${setting}`, 'utf8').trim() === '1';
  } catch {
    // The file is missing if the interface was removed after `listLinks` read it, or if the kernel has no
    // such setting.
    return false;
  }
}

/**
 * Returns one fault for each policed interface whose IPv6 packets the node forwards although the setting
 * `forwarding` of the interface is 0. `bpf_fib_lookup` reads this setting and looks up no route then, so the
 * datapath would take each packet of the interface for one to the node, and could not check its source.
 * `bridged` are bridge ports, whose packets the node forwards by the setting of the bridge.
 */
export function forwardingFaults(
  policed: readonly Interface[],
  bridged: readonly { readonly ifindex: number }[],
): string[] {
  return policed
    .filter(({ ifindex }) => bridged.every((port) => port.ifindex !== ifindex))
    .filter(({ name }) => forwardsFamily('ipv6', name) && !isSet('ipv6', name, 'forwarding'))
    .map(
      ({ name }) =>
        `the node forwards IPv6 packets of ${name}, but net.ipv6.conf.${name}.forwarding is 0, so the datapath finds no routes for them: set it to 1`,
    );
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

/**
 * Returns whether all frames of this VLAN interface are dropped, because a policed interface below it drops
 * them.
 */
export function isCutOff({ kind, lower }: Link, policed: readonly Interface[]): boolean {
  return kind === 'vlan' && policed.some(({ ifindex }) => ifindex === lower);
}
