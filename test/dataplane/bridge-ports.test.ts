import { expect, test } from 'vitest';
import type { Link } from '#dataplane/attach/interfaces/netlink-interfaces.js';
import { bridgeWarnings, portFaults } from '#dataplane/review/bridge-ports.js';

/**
 * Returns the description of a link of the type `kind`. The test creates no real links, since the kernel may
 * lack support for the type.
 */
const link = (ifindex: number, name: string, kind: string, more: Partial<Link> = {}): Link => ({
  ...{
    ifindex,
    name,
    kind,
    master: 0,
    lower: 0,
    mac: new Uint8Array(6),
    isUp: true,
    isLoopback: false,
    isEthernet: true,
    alternativeNames: [],
    xdpPrograms: [],
    callsIptables: false,
    filtersVlans: false,
  },
  ...more,
});
const faults = (policed: string, ...links: readonly Link[]): string[] =>
  portFaults(
    links.filter(({ name }) => name === policed),
    links,
    [],
  );

test.each(['bond', 'team', 'vrf', 'bridge', 'openvswitch'])(
  'a policed interface that is a port of an interface of the kind %s is refused, and the message names both interfaces',
  (kind) => {
    expect(faults('eth0', link(2, 'eth0', '', { master: 3 }), link(3, 'up0', kind))).toEqual([
      `eth0 is a port of ${kind} up0: put up0 into dataplane.interfaces instead, or remove eth0 from it`,
    ]);
    expect(faults('up0', link(2, 'eth0', '', { master: 3 }), link(3, 'up0', kind))).toEqual([]);
  },
);

test('a VLAN interface on top of a bridge port is accepted, and a VLAN interface that is itself a bridge port is refused', () => {
  const [bridge, port] = [link(3, 'br0', 'bridge'), link(2, 'eth0', '', { master: 3 })];
  expect(faults('eth0.5', bridge, port, link(4, 'eth0.5', 'vlan', { lower: 2 }))).toEqual([]);
  expect(faults('br0.5', bridge, port, link(4, 'br0.5', 'vlan', { lower: 3 }))).toEqual([]);
  expect(faults('eth0.5', bridge, port, link(4, 'eth0.5', 'vlan', { lower: 2, master: 3 }))).toEqual([
    'eth0.5 is a port of bridge br0: put br0 into dataplane.interfaces instead, or remove eth0.5 from it',
  ]);
});

test.each(['macvlan', 'macvtap', 'ipvlan', 'ipvtap'])(
  'a policed interface with an unpoliced interface of the kind %s on top is refused, and a policed upper interface is accepted',
  (kind) => {
    const links = [link(2, 'eth0', ''), link(4, 'tap0', kind, { lower: 2 })];
    expect(faults('eth0', ...links)).toEqual([
      `eth0 gives frames to ${kind} tap0 before the datapath sees them: remove it`,
    ]);
    expect(faults('tap0', ...links)).toEqual([]);
  },
);

test('a policed interface whose master is in another network namespace is refused', () => {
  expect(faults('eth0', link(2, 'eth0', '', { master: 9 }))).toEqual([
    'eth0 is a port of another interface: put that interface into dataplane.interfaces instead, or remove eth0 from it',
  ]);
});

test.each([true, false])(
  'a warning names each bridge with policed ports that filters VLANs (VLAN filtering: %s)',
  (filtersVlans) => {
    const bridge = link(3, 'br0', 'bridge', { filtersVlans });
    const ports = [link(1, 'lan0', '', { master: 3 }), link(2, 'wan0', '', { master: 3 })];
    const hasRoutes = { ipv4: false, ipv6: false };
    const addresses = { ipv4: [], ipv6: [] };
    const bridged = ports.map((port) => ({
      ...port,
      bridge,
      hasRoutes,
      isPoliced: false,
      hasRouter: false,
      addresses,
    }));
    expect(bridgeWarnings(bridged, [bridge, ...ports], false)).toEqual(
      filtersVlans ? ['bridge br0 filters VLANs (vlan_filtering): its policed ports drop tagged frames'] : [],
    );
  },
);
