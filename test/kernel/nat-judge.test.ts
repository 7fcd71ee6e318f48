import { execFileSync } from 'node:child_process';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import type { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { DatapathNode } from './datapath-node.js';
import { ALLOWED, allowAll, denyAll } from './policies.js';

const PUBLIC = 9_000;
const RULES = `add table ip mine
add chain ip mine pre { type nat hook prerouting priority -100; }
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine post oifname "wan0" masquerade
add rule ip mine pre ip daddr ${ADDRESSES.nodeWan} meta l4proto { tcp, udp } th dport ${PUBLIC} dnat to ${ADDRESSES.client}:${ALLOWED}`;

let node: DatapathNode;
beforeAll(async () => {
  node = await DatapathNode.create('natjudge');
  await node.removeReturnRoute();
  await node.topology.node.must('nft', RULES);
  await node.serve(ALLOWED);
});
afterAll(() => node.remove());
afterEach(() => node.detach());

// `readsConntrack` is false as on most distributions: there nf_conntrack is a module, whose functions need
// CAP_SYS_ADMIN. In the kernel of these tests it is built in.
function police(more: Partial<DatapathOptions> = {}): LocalDatapath {
  const datapath = node.open({ interfaces: ['lan0', 'wan0'], forwarding: 'auto', readsConntrack: false, ...more });
  node.enforce(allowAll);
  return datapath;
}
const passes = async (...asked: Parameters<DatapathNode['ask']>): Promise<boolean> =>
  (await node.ask(...asked)).includes('pong 1');
const ping = async (): Promise<boolean> =>
  (await node.topology.client.run('ping', '-n', '-c', '1', '-W', '1', '-s', '3000', ADDRESSES.server)).code === 0;

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
  'without a search in conntrack, the forward judge (netfilter program) decides translated flows',
  async () => {
    const datapath = police();
    for (const how of ['connect', 'datagram'] as const) {
      expect(await passes('client', how, ADDRESSES.server, ALLOWED)).toBe(true);
      expect(await passes('server', how, ADDRESSES.nodeWan, PUBLIC)).toBe(true);
    }
    expect(await ping()).toBe(true);
    expect(datapath.review()).toMatchObject({
      faults: [],
      warnings: [expect.stringContaining('the kernel module nf_conntrack was loaded after Weir, so restart Weir')],
    });
  },
);

skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
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
    const client = node.topology.client.start(process.execPath, words);
    let printed = '';
    client.stdout?.setEncoding('utf8').on('data', (text: string) => {
      printed += text;
    });
    await expect.poll(() => printed).toContain('pong 3');
    node.enforce(denyAll);
    await expect.poll(() => printed).toContain('silent');
    expect(await passes('server', 'datagram', ADDRESSES.nodeWan, PUBLIC)).toBe(false);
  },
);

test('a review reports NAT beside a service plane as a fault if the BPF programs cannot look up connections in conntrack', () => {
  const datapath = police({ servicePlane: { address: 0x7f00_0001, port: 15_001 } });
  expect(datapath.review().faults.join()).toContain(
    'the kernel module nf_conntrack was loaded after Weir, so restart Weir',
  );
  const guard = execFileSync('nft', ['list', 'chain', 'inet', 'weir', 'guard'], { encoding: 'utf8' });
  expect(guard.match(/accept comment/g)).toHaveLength(1);
});
