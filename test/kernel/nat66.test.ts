import type { ChildProcess } from 'node:child_process';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { datapathOptions } from './datapath-options.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { topologyOfFile } from './topology-of-file.js';

const [OPEN, CLOSED] = [8_000, 8_001];
const IPV6_NAT = `add table ip6 mine
add chain ip6 mine post { type nat hook postrouting priority 100; }
add rule ip6 mine post oifname "wan0" masquerade`;
const IPV4_NAT = `add table ip mine
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine post oifname "wan0" masquerade`;
const ONLY_TCP_AND_UDP =
  'nftables chain ip6 mine post may translate the source of IPv6 packets: only replies by TCP and UDP pass, and the guard drops ICMPv6 and fragments';
/** Answers each connection with the address of its client. */
const SERVER = `
  const listen = (port) => new Promise((resolve) =>
    require('node:net').createServer((socket) => socket.on('error', () => {}).end(socket.remoteAddress)).listen(port, '::', resolve));
  Promise.all([listen(${OPEN}), listen(${CLOSED})]).then(() => console.log('ready'));`;

const topology = topologyOfFile('nat66');
let server: ChildProcess;
let datapath: LocalDatapath | undefined;
let looking: NodeJS.Timeout | undefined;
beforeAll(async () => {
  await addIpv6(topology);
  // The server knows no route to the client, so that only translated packets get a reply.
  await topology.server.must('ip', '-6', 'route', 'del', 'default');
  server = topology.server.start(process.execPath, ['-e', SERVER]);
  await firstLine(server);
});
afterAll(() => server.kill('SIGKILL'));
afterEach(async () => {
  clearInterval(looking);
  for (const family of ['ip', 'ip6']) await topology.node.run('nft', 'delete', 'table', family, 'mine');
  datapath?.close();
  datapath = undefined;
  detach(topology.pinPath);
});

const get = async (port: number): Promise<string> => {
  const { code, stdout } = await topology.client.run(
    'curl',
    '-sS',
    '--http0.9',
    '-m',
    '2',
    `http://[${IPV6.server}]:${port}/`,
  );
  return code === 0 ? stdout : `exit code ${code}`;
};

function start(forwarding: 'auto' | 'stack' | 'direct'): LocalDatapath {
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, { ipv6: 'enforce', forwarding }));
  datapath.open();
  datapath.attach();
  datapath.stage(compile(allowed, { ipv6: true }), 1);
  datapath.flip();
  datapath.look();
  looking = setInterval(() => datapath?.look(), 500);
  return datapath;
}
const allowed = policy([group([IPV6.client], [rule({ protocol: IPPROTO.tcp, ports: [`${OPEN}`] })])]);

describe('a node that translates the sources of IPv6 packets (NAT66)', () => {
  test.each([
    ['auto', 'IPv6 alone', IPV6_NAT],
    ['auto', 'both families', `${IPV6_NAT}\n${IPV4_NAT}`],
    ['stack', 'IPv6 alone', IPV6_NAT],
  ] as const)(
    'passes the replies to a connection that the policy allows to its client (forwarding: %s, NAT of %s)',
    async (forwarding, _, rules) => {
      await topology.node.must('nft', rules);
      const { review, stats } = bound(start(forwarding));
      expect(await get(OPEN)).toBe(IPV6.nodeWan);
      expect(await get(CLOSED)).toBe('exit code 28');
      expect(stats().drops.policy_deny?.packets).toBeGreaterThan(0n);
      expect(stats().drops.guard?.packets).toBe(0n);
      expect(review()).toEqual({ faults: [], warnings: [ONLY_TCP_AND_UDP] });
      expect(stats().ipv6Forwarding?.way).toBe('stack');
    },
  );

  test('follows rules that are added and deleted later, and drops a packet of the server that opens a connection', async () => {
    const { stats } = bound(start('auto'));
    await topology.node.must('nft', IPV6_NAT);
    await expect.poll(() => get(OPEN)).toBe(IPV6.nodeWan);
    const from = await topology.server.run('curl', '-sS', '-m', '1', `http://[${IPV6.client}]:${OPEN}/`);
    expect(from.code).not.toBe(0);
    await topology.node.must('nft', 'delete', 'table', 'ip6', 'mine');
    await expect.poll(() => stats().ipv6Forwarding?.way).toBe('direct');
  });

  test('warns that replies are dropped if forwarding: direct excludes the search in conntrack', async () => {
    await topology.node.must('nft', IPV6_NAT);
    const { review } = bound(start('direct'));
    expect(await get(OPEN)).toBe('exit code 28');
    expect(review().warnings).toEqual([
      "nftables chain ip6 mine post may translate the source of IPv6 packets: replies to the node's addresses are dropped (dataplane.forwarding is direct)",
    ]);
  });
});

function bound(of: LocalDatapath) {
  return { review: () => of.review(), stats: () => of.stats() };
}
