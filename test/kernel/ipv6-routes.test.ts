import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parseAddress } from '#addresses/ip-address.js';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { writePorts } from '#dataplane/attach/interfaces/port-table.js';
import { compile } from '#policy/compile/compile.js';
import { MORE_FRAGMENTS } from '#test/dataplane/frame.js';
import type { Ipv6FrameOptions } from '#test/dataplane/ipv6-frame.js';
import { DROPPED, type Loaded, loadForTest, PASSED, SKB } from '#test/dataplane/loaded.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { defaultOnly } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';

const at = (text: string): bigint => BigInt(parseAddress(text) ?? 0);
const allowAll = compile(defaultOnly('allow'), { ipv6: true });
const udp: Packet<bigint> = {
  ...{ source: at(IPV6.client), destination: at(IPV6.server), protocol: IPPROTO.udp },
  ...{ sourcePort: 40_000, destinationPort: 5_353, icmpType: 0, icmpCode: 0 },
};

const topology = topologyOfFile('v6routes');
let kernel: Loaded<'ipv6'>;
const interfaces: Record<string, number> = {};
beforeAll(async () => {
  await addIpv6(topology);
  await topology.node.must('ip', 'link', 'add', 'port', 'type', 'veth', 'peer', 'name', 'beyond');
  for (const { name, ifindex } of listInterfaces()) interfaces[name] = ifindex;
  kernel = loadForTest({ family: 'ipv6', classifyAll: false, reversePath: 'strict', policeLocal: true });
});
afterAll(() => kernel?.close());
beforeEach(() => {
  writePorts(kernel.object.mapFd('ports'), []);
  kernel.forget();
  kernel.activate(allowAll);
});
const BRIDGE_MAC = Uint8Array.of(2, 0, 0, 0, 0, 9);
/** Makes the interface `port` a policed port of a bridge with IPv6 routes. */
function makePort(port: { readonly isPoliced: boolean; readonly hasRouter: boolean }): void {
  const bridge = {
    ...{ ifindex: interfaces.lan0 ?? 0, name: 'br0', kind: 'bridge', master: 0, lower: 0, mac: BRIDGE_MAC },
    ...{ isUp: true, isLoopback: false, isEthernet: true, alternativeNames: [], xdpPrograms: [] },
    ...{ callsIptables: false, filtersVlans: false },
  };
  const routes = { hasRoutes: { ipv4: false, ipv6: true }, addresses: { ipv4: [], ipv6: [] } };
  writePorts(kernel.object.mapFd('ports'), [{ ...port, ...routes, ifindex: interfaces.port ?? 0, bridge }]);
}
function see(packet: Packet<bigint>, options: Ipv6FrameOptions = {}, by = 'lan0'): number {
  kernel.context.setUint32(SKB.ifindex, interfaces[by] ?? 0, true);
  return kernel.runPacket(packet, options).returned;
}

describe('destinations to which no router forwards', () => {
  const DESTINATIONS = [IPV6.linkLocal, 'ff02::fb', 'ff05::2', 'ff0e::1'];

  test.each(DESTINATIONS)('with police_local, a packet to %s with a valid source passes', (text) => {
    const destination = at(text);
    expect(see({ ...udp, destination })).toBe(PASSED);
    expect(see({ ...udp, destination }, { fragment: MORE_FRAGMENTS, id: 7, content: new Uint8Array(64) })).toBe(PASSED);
    expect(see({ ...udp, source: at(IPV6.server), destination })).toBe(DROPPED);
    expect(kernel.counted()).toMatchObject({ allow: 2, drop_spoofed_source: 1 });
  });

  test('a port of a bridge with routes passes a multicast packet with a valid source', () => {
    makePort({ isPoliced: false, hasRouter: false });
    for (const text of DESTINATIONS.slice(1)) expect(see({ ...udp, destination: at(text) }, {}, 'port')).toBe(PASSED);
    expect(see({ ...udp, source: at(IPV6.server), destination: at('ff0e::1') }, {}, 'port')).toBe(DROPPED);
    expect(kernel.counted()).toMatchObject({ allow: 3, drop_spoofed_source: 1 });
  });
});
