import { readFileSync } from 'node:fs';
import type { Interface } from '#dataplane/attach/interfaces.js';
import type { Link } from '#dataplane/attach/netlink-interfaces.js';
import { interfaceAddresses } from '#dataplane/routes/addresses.js';
import { hasRoute } from '#dataplane/routes/routes.js';
import { listed } from './listed-names.js';
import { isCutOff } from './tagged-frames.js';

/**
 * Returns a list with at most one warning. The warning names the interfaces that Weir does not police
 * although the node forwards their IPv4 packets (D17b).
 */
export function unnamedWarnings(policed: readonly Interface[], links: readonly Link[]): string[] {
  const candidates = links.filter(
    (link) =>
      link.isUp &&
      !link.isLoopback &&
      link.master === 0 &&
      !policed.some(({ ifindex }) => ifindex === link.ifindex) &&
      !isCutOff(link, policed) &&
      forwards(link.name),
  );
  if (candidates.length === 0) return [];
  const addressed = interfaceAddresses();
  const names = candidates.filter(({ ifindex }) => addressed.has(ifindex) || hasRoute(ifindex)).map(({ name }) => name);
  if (names.length === 0) return [];
  return [`the node forwards packets from ${listed(names)} without a policy: dataplane.interfaces does not contain it`];
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
