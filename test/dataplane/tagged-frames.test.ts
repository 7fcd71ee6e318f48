import { expect, test } from 'vitest';
import type { Link } from '#dataplane/attach/interfaces/netlink-interfaces.js';
import { isCutOff, vlanFaults } from '#dataplane/review/unpoliced-interfaces.js';

/** The test creates no real links, because the kernel may lack VLAN interfaces. */
const link = (ifindex: number, name: string, kind: string, more: Partial<Link> = {}): Link => ({
  ...{ ifindex, name, kind, master: 0, lower: 0, mac: new Uint8Array(6) },
  ...{ isUp: true, isLoopback: false, callsIptables: false, filtersVlans: false },
  ...{ isEthernet: true, alternativeNames: [], xdpPrograms: [] },
  ...more,
});
const vlan = (ifindex: number, name: string, lower: number, more: Partial<Link> = {}): Link =>
  link(ifindex, name, 'vlan', { lower, ...more });
const [eth0, eth1, office, guests] = [
  link(2, 'eth0', ''),
  link(3, 'eth1', ''),
  vlan(5, 'eth0.20', 2),
  vlan(4, 'eth0.10', 2),
];
const links = [eth0, eth1, office, guests];

test('a policed interface with VLAN interfaces on top is refused, even if the VLAN interfaces are policed', () => {
  const fault =
    'eth0 drops the tagged frames of eth0.10, eth0.20: put eth0.10, eth0.20 into dataplane.interfaces instead of eth0, or remove the VLAN';
  expect(vlanFaults([eth0, eth1], links)).toEqual([fault]);
  expect(vlanFaults([eth0, guests, office], links)).toEqual([fault]);
});

test('a VLAN interface is accepted if its lower interface is not policed, or if the VLAN interface is down', () => {
  expect(vlanFaults([eth1, guests, office], links)).toEqual([]);
  expect(vlanFaults([eth0], [eth0, vlan(4, 'eth0.10', 2, { isUp: false })])).toEqual([]);
  expect(vlanFaults([eth0], [eth0, link(4, 'tunnel', 'macsec', { lower: 2 })])).toEqual([]);
});

test('a VLAN interface loses its frames only if its lower interface is policed', () => {
  expect([isCutOff(guests, [eth0]), isCutOff(guests, [eth1, guests]), isCutOff(eth0, [eth0])]).toEqual([
    true,
    false,
    false,
  ]);
});
