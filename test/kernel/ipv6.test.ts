import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { createTopology, type Topology } from '#cli/topology.js';
import { detach } from '#dataplane/kernel/detach.js';
import { LocalDatapath } from '#dataplane/kernel/local-datapath.js';
import type { DatapathOptions } from '#dataplane/kernel/options.js';
import { datapathOptions } from './datapath-options.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { enterNamespace } from './namespace.js';
import { denyAll } from './policies.js';
import { HAS_TCX } from './tcx.js';

let topology: Topology;
let leave: () => void;
beforeAll(async () => {
  topology = await createTopology('v6');
  await addIpv6(topology);
  leave = enterNamespace(topology.node.name);
}, 60_000);
afterAll(async () => {
  leave();
  await topology.remove();
});

let datapath: LocalDatapath;
function start(more: Partial<DatapathOptions> = {}): void {
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, more));
  datapath.open();
  datapath.attach();
  datapath.stage(denyAll, 1);
  datapath.flip();
}
afterEach(() => {
  datapath.close();
  detach(topology.pinPath);
});

const forgetNeighbours = async (): Promise<void> => {
  for (const space of [topology.client, topology.node, topology.server])
    await space.must('ip', '-6', 'neigh', 'flush', 'all');
};

type End = 'client' | 'node' | 'server';
async function reaches(from: End, to: string): Promise<boolean> {
  const { code } = await topology[from].run('ping', '-6', '-n', '-c', '1', '-W', '0.5', to);
  return code === 0;
}

const dropped = (): bigint => datapath.stats().drops.non_ipv4?.packets ?? 0n;

const TO_NODE: readonly [what: string, from: End, to: string][] = [
  ['an address of the link', 'client', IPV6.nodeLan],
  ['an address of another link', 'client', IPV6.nodeWan],
  ['a link-local address', 'client', `${IPV6.linkLocal}%eth0`],
  ['all nodes by multicast', 'client', 'ff02::1%eth0'],
  ['all routers by multicast', 'client', 'ff02::2%eth0'],
  ['the node from its other side', 'server', IPV6.nodeWan],
  ['the client from the node', 'node', IPV6.client],
  ['the server from the node', 'node', IPV6.server],
  ['a link by multicast from the node', 'node', 'ff02::1%wan0'],
];

describe.each<[string, Partial<DatapathOptions>]>([
  [HAS_TCX ? 'tcx' : 'clsact', {}],
  ['clsact', { forceClsact: true }],
  ['direct forwarding, and non_ipv4: pass', { forwarding: 'direct', nonIpv4: 'pass' }],
])('IPv6 of a node with a datapath by %s', (_, options) => {
  test('is not interrupted when the datapath attaches', async () => {
    const ping = topology.client.start('ping', ['-6', '-n', '-O', '-i', '0.01', '-c', '60', IPV6.nodeLan]);
    let output = '';
    const answered = new Promise<void>((resolve) => {
      ping.stdout?.on('data', (chunk: Buffer) => {
        output += chunk.toString();
        if (output.includes('icmp_seq=2')) resolve();
      });
    });
    const ended = once(ping, 'close');
    await answered;
    start(options);
    await ended;
    expect(output).toContain('60 packets transmitted, 60 received');
    expect(dropped()).toBe(0n);
  });

  test('passes to and from the node, and follows non_ipv4 through it', async () => {
    start(options);
    await forgetNeighbours();
    const cut: string[] = [];
    for (const [what, from, to] of TO_NODE) if (!(await reaches(from, to))) cut.push(what);
    expect(cut).toEqual([]);
    expect(dropped()).toBe(0n);
    const passes = options.nonIpv4 === 'pass';
    expect(await reaches('client', IPV6.server)).toBe(passes);
    expect(await reaches('server', IPV6.client)).toBe(passes);
    expect(dropped()).toBe(passes ? 0n : 2n);
  });
});

describe('with police_local, the node’s own IPv6', () => {
  test('is dropped, and neighbours are found all the same', async () => {
    start({ policeLocal: true });
    await forgetNeighbours();
    expect(await reaches('client', IPV6.nodeLan)).toBe(false);
    expect(await reaches('node', IPV6.client)).toBe(false);
    // One echo request came in; the other was refused on its way out.
    expect(dropped()).toBe(2n);
    expect(await topology.client.must('ip', '-6', 'neigh', 'show', IPV6.nodeLan)).toContain('lladdr');
  });

  test('passes where non_ipv4 says so', async () => {
    start({ policeLocal: true, nonIpv4: 'pass' });
    expect(await reaches('client', IPV6.nodeLan)).toBe(true);
    expect(await reaches('node', IPV6.client)).toBe(true);
    expect(dropped()).toBe(0n);
  });
});
