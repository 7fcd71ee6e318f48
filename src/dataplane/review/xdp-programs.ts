import type { Interface } from '#dataplane/attach/interfaces.js';
import type { Link } from '#dataplane/attach/netlink-interfaces.js';

/**
 * Returns one warning for each interface with an XDP program whose frames the hooks of a policed interface
 * should see: the policed interface itself, its ports, and the interfaces on which it is built.
 */
export function xdpWarnings(policed: readonly Interface[], links: readonly Link[]): string[] {
  const carriers = carriersOf(policed, links);
  return links
    .filter(({ ifindex, xdpPrograms }) => xdpPrograms.length > 0 && carriers.has(ifindex))
    .map(
      ({ name, xdpPrograms }) =>
        `XDP program ${xdpPrograms.join(', ')} on ${name} sees packets before the datapath: those that it redirects or sends back pass without a policy`,
    );
}

function carriersOf(policed: readonly Interface[], links: readonly Link[]): ReadonlySet<number> {
  const found = new Set(policed.map(({ ifindex }) => ifindex));
  // JavaScript also visits elements that are added to a set during the loop over the set.
  for (const each of found) {
    for (const { ifindex, lower, master } of links) {
      if (master === each) found.add(ifindex);
      if (ifindex === each && lower !== 0) found.add(lower);
    }
  }
  return found;
}
