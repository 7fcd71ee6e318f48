import { execFileSync } from 'node:child_process';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { firstLine, program } from '#cli/node-process.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/topology.js';
import type { DatapathOptions } from '#contracts/datapath-options.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { datapathOptions } from './datapath-options.js';
import { enterNamespace } from './namespace.js';
import { ALLOWED, allowAll, denyAll } from './policies.js';

const PUBLIC = 9_000;
const RULES = `add table ip mine
add chain ip mine pre { type nat hook prerouting priority -100; }
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine post oifname "wan0" masquerade
add rule ip mine pre ip daddr ${ADDRESSES.nodeWan} meta l4proto { tcp, udp } th dport ${PUBLIC} dnat to ${ADDRESSES.client}:${ALLOWED}`;

let topology: Topology;
let leave: () => void;
let datapath: LocalDatapath;
beforeAll(async () => {
  topology = await createTopology('natjudge');
  const { client, server, node } = topology;
  // The server has no route to the client: it can reply only to an address of the node.
  await server.must('ip', 'route', 'del', 'default');
  await node.must('nft', RULES);
  for (const host of [client, server]) {
    await firstLine(host.start(process.execPath, [program('tour-traffic'), 'serve', String(ALLOWED)]));
  }
  leave = enterNamespace(node.name);
}, 60_000);
afterAll(async () => {
  leave();
  await topology.remove();
});
afterEach(() => {
  datapath.close();
  detach(topology.pinPath);
});

// On most distributions nf_conntrack is a module, whose functions need CAP_SYS_ADMIN. It is built into the
// kernel of these tests.
function police(more: Partial<DatapathOptions> = {}): void {
  datapath = new LocalDatapath(
    datapathOptions(topology.pinPath, {
      interfaces: ['lan0', 'wan0'],
      forwarding: 'auto',
      readsConntrack: false,
      ...more,
    }),
  );
  datapath.open();
  datapath.attach();
  datapath.stage(allowAll, 1);
  datapath.flip();
}
const ask = async (from: 'client' | 'server', how: string, to: string, port: number): Promise<boolean> => {
  const words = [program('tour-traffic'), how, to, String(port), '--timeout', '900'];
  return (await topology[from].run(process.execPath, ...words)).stdout.includes('pong 1');
};
const ping = async (): Promise<boolean> =>
  (await topology.client.run('ping', '-n', '-c', '1', '-W', '1', '-s', '3000', ADDRESSES.server)).code === 0;

test.runIf(hasNetfilterPrograms())(
  'without a search in conntrack, the forward judge decides translated flows',
  async () => {
    police();
    for (const how of ['connect', 'datagram']) {
      expect(await ask('client', how, ADDRESSES.server, ALLOWED)).toBe(true);
      expect(await ask('server', how, ADDRESSES.nodeWan, PUBLIC)).toBe(true);
    }
    expect(await ping()).toBe(true);
    expect(datapath.review()).toMatchObject({
      faults: [],
      warnings: [expect.stringContaining('the kernel module nf_conntrack was loaded after Weir, so restart Weir')],
    });
  },
);

test.runIf(hasNetfilterPrograms())(
  'without a search in conntrack, a policy change cuts a translated flow',
  async () => {
    police();
    const words = [
      program('tour-traffic'),
      'connect',
      ADDRESSES.server,
      String(ALLOWED),
      '--every',
      '20',
      '--timeout',
      '600',
    ];
    const client = topology.client.start(process.execPath, words);
    let printed = '';
    client.stdout?.setEncoding('utf8').on('data', (text: string) => {
      printed += text;
    });
    await expect.poll(() => printed).toContain('pong 3');
    datapath.stage(denyAll, 2);
    datapath.flip();
    await expect.poll(() => printed, { timeout: 3_000 }).toContain('silent');
    expect(await ask('server', 'datagram', ADDRESSES.nodeWan, PUBLIC)).toBe(false);
  },
);

test('without a search in conntrack, NAT with a service plane fails the review', () => {
  police({ servicePlane: { address: 0x7f00_0001, port: 15_001 } });
  expect(datapath.review().faults.join()).toContain(
    'the kernel module nf_conntrack was loaded after Weir, so restart Weir',
  );
  const guard = execFileSync('nft', ['list', 'chain', 'inet', 'weir', 'guard'], { encoding: 'utf8' });
  expect(guard.match(/accept comment/g)).toHaveLength(1);
});
