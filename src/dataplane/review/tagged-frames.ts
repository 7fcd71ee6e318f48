import type { Interface } from '#dataplane/attach/interfaces.js';
import type { Link } from '#dataplane/attach/netlink-interfaces.js';
import { listed } from './listed-names.js';

/**
 * Returns one fault for each policed interface with VLAN interfaces on top. The ingress hook of such an
 * interface sees the frames before the kernel takes their tag off, and drops them in every mode (D17). So the
 * VLAN interfaces receive nothing, policed or not.
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
