import type { Review } from '#contracts/datapath/datapath.js';
import { type DatapathOptions, matchesInterface, policedFamilies } from '#contracts/datapath/datapath-options.js';
import type { Hooks } from '#dataplane/attach/interface-hooks.js';
import type { Interface } from '#dataplane/attach/interfaces/interfaces.js';
import { type Link, listLinks } from '#dataplane/attach/interfaces/netlink-interfaces.js';
import type { PolicedInterface } from '#dataplane/attach/interfaces/policed-names.js';
import { type BridgePort, bridgePortsOf } from '#dataplane/attach/interfaces/port-table.js';
import type { ThirdPartyHook } from '#dataplane/forwarding/third-party-hooks.js';
import { type Flowtable, flowtables } from '#dataplane/guard/nftables.js';
import type { Guard } from '#dataplane/guard/nftables-guard.js';
import { interfaceAddresses, interfaceIpv6Addresses } from '#dataplane/routes/addresses.js';
import { diversionFaults } from '#dataplane/routes/divert.js';
import { hasDefaultRoute, hasRoute } from '#dataplane/routes/routes.js';
import { listRules } from '#dataplane/routes/routing-rules.js';
import { addressFaults, bridgeWarnings, portFaults, portsWithNetfilter, routingBridgeFaults } from './bridge-ports.js';
import { ipv6NatWarnings, type NatSupport, reviewNat } from './nat.js';
import { forwardingFaults, forwardsAny, unnamedWarnings, vlanFaults } from './unpoliced-interfaces.js';

/**
 * The input of `review`. `thirdPartyHooks` returns the hooks of other programs that forwarded packets pass;
 * an empty list if the kernel cannot list them.
 */
type Looked = {
  readonly options: Pick<DatapathOptions, 'markMask' | 'ipv6' | 'routerPorts'>;
  readonly hooks: Pick<Hooks, 'interfaces' | 'names'>;
  readonly guard: Pick<Guard, 'warnings' | 'guardsBridges'>;
  readonly thirdPartyHooks: () => readonly ThirdPartyHook[];
  readonly nat: NatSupport;
  /**
   * True if the datapath redirects packets to the DNS proxy or to the service plane (TLS and HTTP
   * inspection).
   */
  readonly diverts: boolean;
  readonly divertsDns: boolean;
};

/**
 * Returns the faults that prevent Weir from policing the configured interfaces as D17 requires, and
 * warnings. Throws if the state of the kernel cannot be read.
 */
export function review({ options, hooks, guard, thirdPartyHooks, nat, diverts, divertsDns }: Looked): Review {
  const { policed } = hooks.interfaces();
  const links: readonly Link[] = listLinks();
  const bridged = policedPorts(policed, options, links);
  const families = policedFamilies(options);
  const translation = reviewNat(policed, nat, portsWithNetfilter(bridged));
  const faults = [
    ...alternativeNameFaults(hooks.names, policed, links),
    ...portFaults(policed, links, thirdPartyHooks(), guard.guardsBridges() ? bridged : []),
    ...vlanFaults(policed, links),
    ...routingBridgeFaults(bridged, families, forwardsAny),
    ...addressFaults(bridged, families),
    ...(families.includes('ipv6') ? forwardingFaults(policed, bridged) : []),
    ...translation.faults,
    ...flowtableFaults(policed, flowtables(families)),
    ...(diverts
      ? diversionFaults(options.markMask, [...hooks.names, ...policed.map(({ name }) => name)], families)
      : []),
  ];
  const warnings = [
    ...(options.ipv6 === 'enforce' ? ipv6NatWarnings(nat) : []),
    ...alternativeNameWarnings(hooks.names, policed, links),
    ...unnamedWarnings(policed, links, families),
    ...xdpWarnings(policed, links),
    ...bridgeWarnings(bridged, links, diverts),
    ...(divertsDns ? unroutableLookupWarnings() : []),
  ];
  return { faults, warnings: [...warnings, ...translation.warnings, ...guard.warnings()] };
}

export function policedPorts(
  policed: readonly Interface[],
  { routerPorts }: Pick<DatapathOptions, 'routerPorts'>,
  links: readonly Link[] = listLinks(),
): BridgePort[] {
  if (!links.some(({ kind }) => kind === 'bridge')) return [];
  const [ipv4, ipv6] = [interfaceAddresses(), interfaceIpv6Addresses()];
  const addressesOf = (ifindex: number) => ({ ipv4: ipv4.get(ifindex) ?? [], ipv6: ipv6.get(ifindex) ?? [] });
  return bridgePortsOf(policed, links, routerPorts, { addressesOf, hasRoute });
}

/**
 * Returns one fault (a reason why Weir cannot police) for each configured name that is only an alternative
 * name of an interface: the rules of nftables match the main name alone.
 */
function alternativeNameFaults(
  names: readonly string[],
  policed: readonly PolicedInterface[],
  links: readonly Link[],
): string[] {
  return names.flatMap((configured) => {
    if (links.some(({ name }) => name === configured)) return [];
    if (policed.some(({ renamedFrom }) => renamedFrom === configured)) return [];
    const link = links.find(({ alternativeNames }) => alternativeNames.includes(configured));
    return link === undefined
      ? []
      : [`${configured} is an alternative name of ${link.name}: put ${link.name} into dataplane.interfaces instead`];
  });
}

/** Returns one warning for each interface of which a name with `*` matches only alternative names. */
function alternativeNameWarnings(
  names: readonly string[],
  policed: readonly PolicedInterface[],
  links: readonly Link[],
): string[] {
  const patterns = names.filter((name) => name.endsWith('*'));
  return links.flatMap(({ name, ifindex, alternativeNames }) => {
    const alternative = alternativeNames.find((each) => matchesInterface(patterns, each));
    if (alternative === undefined || policed.some((found) => found.ifindex === ifindex)) return [];
    return [
      `${name} is not policed: only its alternative name ${alternative} matches dataplane.interfaces, which must contain ${name}`,
    ];
  });
}

/**
 * Returns one warning for each interface with an XDP program whose frames the hooks of a policed interface
 * should see: the policed interface itself, its ports, and the interfaces on which it is built.
 */
function xdpWarnings(policed: readonly Interface[], links: readonly Link[]): string[] {
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

/**
 * Returns one fault (a reason why Weir cannot police) for each flowtable with the flag `offload` that
 * contains a policed interface. The network card forwards the packets of its flows, and no hook of the kernel
 * sees them. A flowtable without this flag is no fault, because the ingress hook runs before it.
 */
export function flowtableFaults(policed: readonly Pick<Interface, 'name'>[], found: readonly Flowtable[]): string[] {
  return found.flatMap(({ family, table, name, offloads, devices }) => {
    const names = policed.flatMap((each) => (devices.includes(each.name) ? each.name : []));
    if (!offloads || names.length === 0) return [];
    const list = names.join(', ');
    return `flowtable ${family} ${table} ${name} has the flag offload, so the network card forwards flows of ${list} without the datapath: remove the flag, or remove ${list} from the flowtable`;
  });
}

const TABLE_LOCAL = 255;

/**
 * Returns a warning if the node has no default route. With `dns.transparent`, the datapath then does not
 * divert DNS queries to servers without a route: it cannot distinguish these servers from addresses of the
 * node. The kernel drops the queries.
 */
function unroutableLookupWarnings(): string[] {
  const tables = new Set(
    listRules('ipv4').flatMap(({ action, table, mark }) => (action === 'table' && mark === 0 ? [table] : [])),
  );
  if ([...tables].some((table) => table !== TABLE_LOCAL && hasDefaultRoute(table))) return [];
  return [
    'the node has no default route, so the kernel drops DNS queries to servers without a route, although dns.transparent is true: add a default route, or run `ip route add unreachable default metric 4294967295`',
  ];
}
