import type { ChildProcess } from 'node:child_process';
import { afterEach, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { startUpstream } from '#test/e2e/names.js';
import { createRig, type NodeRig, policyOf } from '#test/e2e/rig.js';
import { macOf, runScapy } from './scapy.js';

/**
 * An address of the server, in a network behind the interface `ext0` of the node. The configuration of Weir
 * does not name this interface, so the node does not police it.
 */
const OUTSIDE = '10.77.9.2';
let rig: NodeRig;
let upstream: ChildProcess;

async function start(dataplane: Readonly<Record<string, unknown>>): Promise<void> {
  rig = await createRig('trial-dns', [443], {
    dataplane: { pickup: '0s', police_local: false, ...dataplane },
    sections: {
      dns: {
        listen: [`${ADDRESSES.nodeLan}:53`],
        upstreams: [`${ADDRESSES.server}:53`],
        rebind_allow: ['*.example.com'],
      },
    },
  });
  const { node, server } = rig.topology;
  upstream = await startUpstream(rig);
  await node.must('ip', 'link', 'add', 'ext0', 'type', 'veth', 'peer', 'name', 'ext0', 'netns', server.name);
  await node.must('ip', 'addr', 'add', '10.77.9.1/24', 'dev', 'ext0');
  await server.must('ip', 'addr', 'add', `${OUTSIDE}/24`, 'dev', 'ext0');
  for (const space of [node, server]) await space.must('ip', 'link', 'set', 'ext0', 'up');
  for (const name of ['all', 'default', 'lan0', 'wan0', 'ext0'])
    await node.must('sysctl', '-qw', `net.ipv4.conf.${name}.rp_filter=0`);
  await rig.put(policyOf([{ match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [443] } }]));
  await rig.node.ready();
}
afterEach(async () => {
  upstream?.kill('SIGKILL');
  await rig?.remove();
});

/** Returns the hostnames that have a granted address. */
async function granted(): Promise<readonly string[]> {
  const { body } = await rig.node.request('GET', '/api/v1/dns-cache');
  const { items } = body as { items: { hostname: string; ips: string[] }[] };
  return items.filter(({ ips }) => ips.length > 0).map(({ hostname }) => hostname);
}

/**
 * Sends DNS queries with forged source addresses, mostly with that of the client, from the network namespace
 * of the server through `device`.
 */
async function forge(device: 'eth0' | 'ext0'): Promise<void> {
  const { node, server } = rig.topology;
  await runScapy(
    server,
    `
mac, own = '${await macOf(node, device === 'eth0' ? 'wan0' : 'ext0')}', get_if_hwaddr('${device}')
c, n = '${ADDRESSES.client}', '${ADDRESSES.nodeLan}'
e = lambda d=mac: Ether(src=own, dst=d)
q = lambda name='api.example.com', **k: DNS(id=random.randrange(65536), rd=1, qd=DNSQR(qname=name, **k))
u = lambda s=4000: UDP(sport=s, dport=53)
whole = lambda i: IP(src=c, dst=n, id=i) / u() / q('www.example.com')
frames = [
    e() / IP(src=c, dst=n) / u() / q(),
    e() / IP(src=c, dst=n) / u(53) / q(),
    e() / IP(src=c, dst=n) / u(5353) / q('www.example.com'),
    e() / IP(src=c, dst=n) / u() / q(qtype='AAAA'),
    e() / IP(src=c, dst=n) / u() / q(qtype='ANY'),
    e() / IP(src=c, dst=n, tos=0xb8, ttl=255) / u() / q(),
    e() / IP(src=c, dst=n, flags='DF') / u() / q('six.example.com'),
    e() / IP(src=c, dst=n, options=[IPOption(b'\\x94\\x04\\x00\\x00')]) / u() / q(),
    e() / IP(src=c, dst=n, options=[IPOption_RR(routers=['0.0.0.0'] * 3)]) / u() / q(),
    e('ff:ff:ff:ff:ff:ff') / IP(src=c, dst=n) / u() / q(),
    e() / IP(src='${ADDRESSES.clientOther}', dst=n) / u() / q(),
    e() / IP(src='10.77.1.99', dst=n) / u() / q(),
    e() / IP(src=c, dst='${ADDRESSES.nodeWan}') / u() / q(),
    e() / Dot1Q(vlan=0) / IP(src=c, dst=n) / u() / q(),
    e() / IP(src=c, dst=n) / TCP(sport=4000, dport=53, flags='S'),
    e() / IP(src=c, dst=n) / TCP(sport=4000, dport=53, flags='PA') / Raw(struct.pack('!H', len(bytes(q()))) + bytes(q())),
    *[e() / f for f in fragment(whole(7), fragsize=16)],
    *[e() / f for f in reversed(fragment(whole(8), fragsize=24))],
    e() / IP(src=c, dst='10.77.1.255') / u() / q(),
    e() / IP(src='${ADDRESSES.nodeLan}', dst=n) / u() / q(),
]
s = conf.L2socket(iface='${device}')
for _ in range(2):
    for frame in frames: s.send(frame); time.sleep(0.01)`,
  );
  await server.run(
    'hping3',
    '-q',
    '-2',
    '-c',
    '3',
    '-i',
    'u20000',
    '-a',
    ADDRESSES.client,
    '-p',
    '53',
    '-I',
    device,
    ADDRESSES.nodeLan,
  );
  await new Promise((resolve) => setTimeout(resolve, 500));
}

const lookups = async (): Promise<number> => {
  const { body } = await rig.node.request('GET', '/api/v1/stats');
  return (body as { dns: { queries_allow: number } }).dns.queries_allow;
};

const forwardsNothing = (device: string): Promise<string> =>
  rig.topology.node.must('sysctl', '-qw', `net.ipv4.conf.${device}.forwarding=0`);

describe.each([
  ['strict', 'wan0'],
  ['strict', 'ext0'],
  ['strict', 'wan0 without forwarding'],
  ['strict', 'ext0 without forwarding'],
] as const)('a node with reverse_path %s', (reversePath, by) => {
  test(`a node grants no address for a DNS query with a forged client address that arrives on ${by}`, async () => {
    await start({ reverse_path: reversePath });
    const [device = ''] = by.split(' ');
    if (by.endsWith('without forwarding')) await forwardsNothing(device);
    await forge(device === 'wan0' ? 'eth0' : 'ext0');
    expect({ granted: await granted(), lookups: await lookups() }).toEqual({ granted: [], lookups: 0 });
    expect(await rig.tcp(443)).toBe('refused ETIMEDOUT');
    if (by.startsWith('wan0')) await rig.topology.node.must('sysctl', '-qw', 'net.ipv4.conf.wan0.forwarding=1');
    // The real client still gets answers.
    const dug = await rig.topology.client.must('dig', `@${ADDRESSES.nodeLan}`, '+short', '+tries=2', 'api.example.com');
    expect(dug.trim()).toBe(ADDRESSES.server);
    expect(await rig.tcp(443)).toBe('open');
  });
});

test('with reverse_path off, a DNS query with the forged source address of a client grants an address, so the attack of this trial works', async () => {
  await start({ reverse_path: 'off' });
  await forge('ext0');
  expect((await granted()).length).toBeGreaterThan(0);
});
