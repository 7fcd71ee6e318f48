import { readFileSync } from 'node:fs';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { Datapath, DatapathChange } from '#contracts/datapath/datapath.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { compile } from '#policy/compile/compile.js';
import { onlyFrom } from '#test/dataplane/conversation.js';
import { ProgressClock } from '#test/progress-clock.js';
import { datapathOptions } from './datapath-options.js';
import { forwarded } from './forwarded.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { defaultOnly } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';

const PORT = 4_000;
const HEARD_MS = 1_000;
const DIRECT_FOR_MS = 3_000;
const policy = compile(onlyFrom(parseIpv4Address(ADDRESSES.client) ?? 0));
const MASQUERADE = `add table ip mine
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine post oifname "wan0" masquerade
`;

const topology = topologyOfFile('auto');
let close: (() => void | Promise<void>) | undefined;
let endFlow: (() => void) | undefined;
afterEach(async () => {
  endFlow?.();
  endFlow = undefined;
  for (const family of ['ip', 'ip6']) await topology.node.run('nft', 'delete', 'table', family, 'mine');
  await topology.node.run('ip', '-6', 'rule', 'del', 'pref', '900');
  await topology.node.must('ip', 'xfrm', 'policy', 'flush');
  await close?.();
  close = undefined;
  detach(topology.pinPath);
});

const options = (more: Partial<DatapathOptions> = {}): DatapathOptions =>
  datapathOptions(topology.pinPath, { forwarding: 'auto', ...more });

/**
 * Starts a datapath in this thread. The datapath checks for third-party hooks (for example nftables chains of
 * other software) only when the test calls `look`.
 */
function local(more: Partial<DatapathOptions> = {}): LocalDatapath {
  const datapath = new LocalDatapath(options(more));
  close = () => datapath.close();
  datapath.open();
  datapath.attach();
  datapath.stage(policy, 1);
  datapath.flip();
  datapath.look();
  return datapath;
}

/**
 * Starts a datapath in its own thread, as a node does. The thread receives kernel notifications and checks
 * for third-party hooks each second. Returns after direct forwarding has begun.
 */
async function threaded(): Promise<Datapath> {
  const datapath = openDatapath(options());
  close = () => datapath.close();
  await datapath.open();
  await datapath.attach();
  await datapath.stage(policy, 1);
  await datapath.flip();
  await expect.poll(async () => (await datapath.stats()).forwarding.way).toBe('direct');
  return datapath;
}

/**
 * Returns true if the network stack forwards an echo request and its reply, and false if the datapath sends
 * both directly.
 */
async function goesByStack(): Promise<boolean> {
  const before = forwarded();
  const { stdout } = await topology.client.run('ping', '-n', '-c', '1', '-W', '2', ADDRESSES.server);
  expect(stdout).toContain('1 received');
  const count = forwarded() - before;
  expect([0, 2]).toContain(count);
  return count === 2;
}

/**
 * Sends datagrams from the client to an echo server, by one UDP flow or by a new flow every `renewedMs`
 * milliseconds. The server records each change of the source address that it receives from, and the time of
 * the change.
 */
async function begin(port: number, source: string = ADDRESSES.client, renewedMs = 0) {
  const serve = `
    const socket = require('node:dgram').createSocket('udp4');
    let last, count = 0;
    socket.on('message', (message, from) => {
      count++;
      if (from.address !== last) console.log(JSON.stringify({ from: from.address, at: Date.now() }));
      last = from.address;
      socket.send(message, from.port, from.address);
    });
    socket.bind(${port}, () => console.log('{}'));
  `;
  const ask = `
    let socket;
    const renew = () => {
      const fresh = require('node:dgram').createSocket('udp4');
      fresh.bind(0, '${source}', () => {
        socket?.close();
        socket = fresh;
      });
    };
    renew();
    if (${renewedMs} > 0) setInterval(renew, ${renewedMs});
    setInterval(() => socket?.send('x', ${port}, '${ADDRESSES.server}'), 2);
  `;
  const server = topology.server.start(process.execPath, ['-e', serve]);
  const seen: { readonly from?: string; readonly at?: number }[] = [];
  server.stdout?.setEncoding('utf8').on('data', (text: string) => {
    seen.push(
      ...text
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line)),
    );
  });
  await expect.poll(() => seen.length).toBeGreaterThan(0);
  const client = topology.client.start(process.execPath, ['-e', ask]);
  endFlow = () => {
    client.kill('SIGKILL');
    server.kill('SIGKILL');
  };
  return {
    sources: () => seen.flatMap(({ from }) => from ?? []),
    lastChange: () => seen.at(-1)?.at ?? 0,
  };
}

async function nft(text: string): Promise<void> {
  await topology.node.must('nft', text);
}

test('with forwarding: auto, NAT takes effect within a second after its nftables chain is added, and ends within a second after its deletion', async () => {
  const datapath = await threaded();
  const changes: DatapathChange[] = [];
  datapath.watch((change) => changes.push(change));
  // Open a new flow every 100 ms, because the kernel does not translate a flow that it tracked before the NAT
  // chain was added.
  const flow = await begin(PORT, ADDRESSES.client, 100);
  await expect.poll(() => flow.sources()).toEqual([ADDRESSES.client]);
  await expect.poll(async () => (await datapath.stats()).activeFlows).toBeGreaterThan(0);

  await nft(MASQUERADE);
  const added = Date.now();
  const sinceAdded = new ProgressClock();
  await expect.poll(() => flow.sources()).toEqual([ADDRESSES.client, ADDRESSES.nodeWan]);
  expect(flow.lastChange() - added - sinceAdded.waitedMs()).toBeLessThan(HEARD_MS);

  await nft('delete table ip mine');
  const removed = Date.now();
  const sinceRemoved = new ProgressClock();
  await expect
    .poll(() => flow.sources(), { timeout: 5_000 })
    .toEqual([ADDRESSES.client, ADDRESSES.nodeWan, ADDRESSES.client]);
  expect(flow.lastChange() - removed - sinceRemoved.waitedMs()).toBeLessThan(HEARD_MS);
  await expect.poll(async () => (await datapath.stats()).forwarding.way).toBe('direct');
  endFlow?.();
  expect([changes.at(0), changes.at(-1)]).toEqual([
    { type: 'forwarding_changed', family: 'ipv4', way: 'direct', reason: 'no third-party hook except NAT' },
    { type: 'forwarding_changed', family: 'ipv4', way: 'direct', reason: 'no third-party hook' },
  ]);
});

test('with forwarding: auto, a new IPsec policy, which causes no notification, ends direct forwarding within three seconds', async () => {
  const datapath = await threaded();
  expect(await goesByStack()).toBe(false);
  const policyOf = ['src', '10.99.0.0/24', 'dst', '10.98.0.0/24', 'dir', 'fwd'];
  await topology.node.must('ip', 'xfrm', 'policy', 'add', ...policyOf, 'action', 'block');
  await expect
    .poll(async () => (await datapath.stats()).forwarding.reason, { timeout: DIRECT_FOR_MS })
    .toContain('IPsec');
  expect(await goesByStack()).toBe(true);
  await topology.node.must('ip', 'xfrm', 'policy', 'flush');
  await expect.poll(async () => (await datapath.stats()).forwarding.way).toBe('direct');
  expect(await goesByStack()).toBe(false);
});

test('with forwarding: auto, the node does not forward packets that an IPsec policy blocks', async () => {
  const datapath = local();
  expect(await goesByStack()).toBe(false);
  const forbidden = ['src', ADDRESSES.client, 'dst', ADDRESSES.server, 'dir', 'fwd', 'action', 'block'];
  await topology.node.must('ip', 'xfrm', 'policy', 'add', ...forbidden);
  datapath.look();
  const { stdout } = await topology.client.run('ping', '-n', '-c', '1', '-W', '0.5', ADDRESSES.server);
  await topology.node.must('ip', 'xfrm', 'policy', 'flush');
  expect(stdout).toContain('0 received');
});

test('with forwarding: auto, the network stack forwards packets again if three seconds pass without a check for third-party hooks', async () => {
  const datapath = local();
  expect(await goesByStack()).toBe(false);
  await expect.poll(goesByStack, { interval: 200 }).toBe(true);
  datapath.look();
  expect(await goesByStack()).toBe(false);
});

test('with forwarding: auto, the network stack forwards packets after the datapath was closed', async () => {
  const datapath = local();
  expect(await goesByStack()).toBe(false);
  datapath.close();
  expect(await goesByStack()).toBe(true);
});

test('with forwarding: auto, a restarted datapath forwards by the network stack until a check finds no third-party hook', async () => {
  local({ forwarding: 'direct' }).close();
  expect(await goesByStack()).toBe(false);
  await nft(MASQUERADE);
  const datapath = new LocalDatapath(options());
  close = () => datapath.close();
  expect(datapath.open().adopted).toBe(true);
  expect(datapath.stats().forwarding).toEqual({ way: 'stack', reason: 'nftables chain ip mine post' });
  await nft('delete table ip mine');
  expect(await goesByStack()).toBe(true);
  datapath.look();
  expect(await goesByStack()).toBe(false);
});

test('a datapath that restarts with another value of `forwarding` forwards packets in the new way', async () => {
  for (const forwarding of ['stack', 'auto', 'direct', 'auto', 'stack'] as const) {
    const datapath = local({ forwarding });
    expect(await goesByStack()).toBe(forwarding === 'stack');
    datapath.close();
  }
});

test.each([
  ['stack', true],
  ['direct', false],
] as const)(
  'with forwarding: %s, a third-party nftables chain does not change forwarding',
  async (forwarding, byStack) => {
    const datapath = local({ forwarding });
    expect(await goesByStack()).toBe(byStack);
    await nft('add table ip mine; add chain ip mine some { type filter hook forward priority 10; }');
    datapath.look();
    expect(await goesByStack()).toBe(byStack);
    expect(datapath.stats().forwarding).toEqual({ way: forwarding, reason: 'as configured' });
  },
);

test('with forwarding: auto, each denied packet is dropped and no allowed packet is lost while forwarding changes between direct and stack', async () => {
  const datapath = local();
  const denied = await begin(PORT + 1, ADDRESSES.clientOther);
  const allowed = topology.client.start('ping', ['-n', '-i', '0.002', '-c', '1000', ADDRESSES.server]);
  let said = '';
  allowed.stdout?.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const ways: string[] = [];
  while (!said.includes('transmitted')) {
    await nft('add table ip mine; add chain ip mine some { type filter hook forward priority 10; }');
    datapath.look();
    ways.push(datapath.stats().forwarding.way);
    await nft('delete table ip mine');
    datapath.look();
    ways.push(datapath.stats().forwarding.way);
  }
  expect(said).toContain('1000 received');
  expect(ways.length).toBeGreaterThan(8);
  expect(ways.filter((way, index) => way !== (index % 2 === 0 ? 'stack' : 'direct'))).toEqual([]);
  expect(denied.sources()).toEqual([]);
  expect(datapath.stats().drops.policy_deny?.packets).toBeGreaterThan(100n);
});

describe('with forwarding: auto and ipv6: enforce', () => {
  const allowBoth = compile(defaultOnly('allow'), { ipv6: true });
  beforeAll(() => addIpv6(topology));

  function ofBothFamilies(): LocalDatapath {
    const datapath = new LocalDatapath(options({ ipv6: 'enforce' }));
    close = () => datapath.close();
    datapath.open();
    datapath.attach();
    datapath.stage(allowBoth, 1);
    datapath.flip();
    datapath.look();
    return datapath;
  }
  const ipv6Forwarded = (): number =>
    Number(/Ip6OutForwDatagrams\s+(\d+)/.exec(readFileSync('/proc/thread-self/net/snmp6', 'utf8'))?.[1]);
  /** The ways of an IPv4 and an IPv6 echo request to the server. */
  async function ways(): Promise<string[]> {
    const before = ipv6Forwarded();
    const ipv4 = (await goesByStack()) ? 'stack' : 'direct';
    const { stdout } = await topology.client.run('ping', '-6', '-n', '-c', '4', '-i', '0.05', '-W', '2', IPV6.server);
    expect(stdout).toContain('4 received');
    return [ipv4, ipv6Forwarded() - before >= 8 ? 'stack' : 'direct'];
  }

  test.each([
    [
      'an nftables chain',
      'ip6',
      'add table ip6 mine; add chain ip6 mine some { type filter hook forward priority 10; }',
      'nftables chain ip6 mine some',
    ],
    [
      'NAT',
      'ip6',
      'add table ip6 mine; add chain ip6 mine post { type nat hook postrouting priority 100; }',
      'nftables chain ip6 mine post',
    ],
    [
      'an nftables chain',
      'ip',
      'add table ip mine; add chain ip mine some { type filter hook forward priority 10; }',
      'nftables chain ip mine some',
    ],
  ])(
    '%s of the family %s makes the packets of this family alone take the network stack',
    async (_, family, rules, reason) => {
      const datapath = ofBothFamilies();
      expect(await ways()).toEqual(['direct', 'direct']);
      await nft(rules);
      datapath.look();
      const { forwarding, ipv6Forwarding } = datapath.stats();
      const own = { way: 'stack', reason };
      const other = { way: 'direct', reason: 'no third-party hook' };
      expect([forwarding, ipv6Forwarding]).toEqual(family === 'ip' ? [own, other] : [other, own]);
      expect(await ways()).toEqual(family === 'ip' ? ['stack', 'direct'] : ['direct', 'stack']);
      await topology.node.must('nft', 'delete', 'table', family, 'mine');
      datapath.look();
      expect(await ways()).toEqual(['direct', 'direct']);
    },
  );

  test('a routing rule of IPv6 that selects by mark makes IPv6 packets alone take the network stack', async () => {
    const datapath = ofBothFamilies();
    await topology.node.must('ip', '-6', 'rule', 'add', 'pref', '900', 'fwmark', '7', 'table', 'main');
    datapath.look();
    const { forwarding, ipv6Forwarding } = datapath.stats();
    expect(await ways()).toEqual(['direct', 'stack']);
    await topology.node.must('ip', '-6', 'rule', 'del', 'pref', '900');
    expect([forwarding.way, ipv6Forwarding?.reason]).toEqual([
      'direct',
      'ip -6 rule 900, which matches more than addresses and ports',
    ]);
  });

  test('an IPv6 packet from a link-local address is not sent to another link', async () => {
    ofBothFamilies();
    const echoes = async (): Promise<number> =>
      Number(/Icmp6InEchos\s+(\d+)/.exec(await topology.server.must('cat', '/proc/net/snmp6'))?.[1]);
    const ping = ['ping', '-6', '-n', '-c', '3', '-i', '0.05', '-W', '0.5'] as const;
    const before = await echoes();
    await topology.client.run(...ping, '-I', 'fe80::2%eth0', IPV6.server);
    expect(await echoes()).toBe(before);
    await topology.client.must(...ping, IPV6.server);
    expect(await echoes()).toBe(before + 3);
  });

  test('IPv6 packets take the network stack if three seconds pass without a check for third-party hooks', async () => {
    ofBothFamilies();
    expect(await ways()).toEqual(['direct', 'direct']);
    await expect.poll(ways, { interval: 200 }).toEqual(['stack', 'stack']);
  });
});
