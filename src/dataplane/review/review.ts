import type { Review } from '#contracts/datapath/datapath.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { Hooks } from '#dataplane/attach/interface-hooks.js';
import type { Interface } from '#dataplane/attach/interfaces.js';
import { type Link, listLinks } from '#dataplane/attach/netlink-interfaces.js';
import { type BridgePort, bridgePortsOf } from '#dataplane/attach/port-table.js';
import type { ThirdPartyHook } from '#dataplane/forwarding/third-party-hooks.js';
import type { Guard } from '#dataplane/guard/nftables-guard.js';
import { interfaceAddresses } from '#dataplane/routes/addresses.js';
import { diversionFaults } from '#dataplane/routes/divert.js';
import { hasRoute } from '#dataplane/routes/routes.js';
import { alternativeNameFaults, alternativeNameWarnings } from './alternative-names.js';
import { addressFaults, bridgeWarnings, portFaults, portsWithNetfilter, routingBridgeFaults } from './bridge-ports.js';
import { flowtableFaults } from './flowtables.js';
import { type NatSupport, reviewNat } from './nat.js';
import { vlanFaults } from './tagged-frames.js';
import { forwardsAny, unnamedWarnings } from './unpoliced-interfaces.js';
import { unroutableLookupWarnings } from './unroutable-lookups.js';
import { xdpWarnings } from './xdp-programs.js';

/**
 * The input of `review`. `thirdPartyHooks` returns the hooks of the kernel that forwarded packets pass; an
 * empty list if the kernel cannot list them.
 */
type Looked = {
  readonly options: Pick<DatapathOptions, 'markMask'>;
  readonly hooks: Pick<Hooks, 'interfaces' | 'names'>;
  readonly guard: Pick<Guard, 'warnings' | 'guardsBridges'>;
  readonly thirdPartyHooks: () => readonly ThirdPartyHook[];
  readonly nat: NatSupport;
  /** True if the datapath redirects packets to the DNS proxy or to the service plane. */
  readonly diverts: boolean;
  /** True if the datapath redirects DNS queries to the DNS proxy. */
  readonly divertsDns: boolean;
};

/**
 * Returns the faults that prevent Weir from policing the configured interfaces as D17 requires, and
 * warnings. Throws if the state of the kernel cannot be read.
 */
export function review({ options, hooks, guard, thirdPartyHooks, nat, diverts, divertsDns }: Looked): Review {
  const { policed } = hooks.interfaces();
  const links: readonly Link[] = listLinks();
  const bridged = policedPorts(policed, links);
  const translation = reviewNat(policed, nat, portsWithNetfilter(bridged));
  const faults = [
    ...alternativeNameFaults(hooks.names, policed, links),
    ...portFaults(policed, links, thirdPartyHooks(), guard.guardsBridges() ? bridged : []),
    ...vlanFaults(policed, links),
    ...routingBridgeFaults(bridged, forwardsAny),
    ...addressFaults(bridged),
    ...translation.faults,
    ...flowtableFaults(policed),
    ...(diverts ? diversionFaults(options.markMask, [...hooks.names, ...policed.map(({ name }) => name)]) : []),
  ];
  const warnings = [
    ...alternativeNameWarnings(hooks.names, policed, links),
    ...unnamedWarnings(policed, links),
    ...xdpWarnings(policed, links),
    ...bridgeWarnings(bridged, links, diverts),
    ...(divertsDns ? unroutableLookupWarnings() : []),
  ];
  return { faults, warnings: [...warnings, ...translation.warnings, ...guard.warnings()] };
}

/** Returns the policed bridge ports, with the present addresses and routes of their bridges. */
export function policedPorts(policed: readonly Interface[], links: readonly Link[] = listLinks()): BridgePort[] {
  if (!links.some(({ kind }) => kind === 'bridge')) return [];
  const addresses = interfaceAddresses();
  return bridgePortsOf(policed, links, { addressesOf: (ifindex) => addresses.get(ifindex) ?? [], hasRoute });
}
