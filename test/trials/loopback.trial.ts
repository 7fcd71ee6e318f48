import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig, policyOf } from '#test/e2e/rig.js';
import { jsonAtEnd } from './json-at-end.js';
import { macOf, runScapy } from './scapy.js';

const PORT = 9_000;
let rig: NodeRig;

async function start(dataplane: Readonly<Record<string, unknown>>): Promise<void> {
  rig = await createRig('trial-lo', [80], { dataplane: { pickup: '0s', ...dataplane } });
  await rig.put(policyOf([{ match: {} }], { sources: { cidrs: ['0.0.0.0/0'] } }, { default_policy: 'allow' }));
  const { node } = rig.topology;
  for (const name of ['all', 'lan0', 'wan0']) {
    await node.must('sysctl', '-qw', `net.ipv4.conf.${name}.route_localnet=1`, `net.ipv4.conf.${name}.rp_filter=0`);
    await node.must('sysctl', '-qw', `net.ipv4.conf.${name}.accept_local=1`);
  }
}
afterEach(() => rig?.remove());

/**
 * Starts listeners for UDP, TCP and raw IP on 127.0.0.1 and 127.0.0.53 of the node. The returned function
 * returns a line for each packet or connection that arrived.
 */
async function listen(): Promise<() => Promise<readonly string[]>> {
  const child = rig.topology.node.start('/usr/bin/python3', [
    '-c',
    `
import json, select, socket, sys
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('127.0.0.1', ${PORT}))
t = socket.create_server(('127.0.0.1', ${PORT}))
r = [socket.socket(socket.AF_INET, socket.SOCK_RAW, p) for p in (1, 6, 47, 132)]
w = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); w.bind(('127.0.0.53', ${PORT}))
print('ready', flush=True)
seen = []
while True:
    ready, _, _ = select.select([u, t, w, sys.stdin, *r], [], [])
    for s in ready:
        if s is sys.stdin: print(json.dumps(seen), flush=True); sys.exit()
        if s is t: c, a = t.accept(); seen.append('TCP %s' % a[0]); c.close()
        elif s in r:
            p = s.recv(4000)
            if p[16] == 127 and (p[9] != 6 or p[12] != 127): seen.append('raw %d' % p[9])
        else:
            p, a = s.recvfrom(4000); seen.append('UDP %s' % a[0]); s.sendto(b'answer', a)
`,
  ]);
  await firstLine(child);
  return () => jsonAtEnd<string[]>(child, 300);
}

let script: string;
beforeAll(() => {
  script = `
def attacks(mac, own):
    e = lambda d=mac, **k: Ether(src=own, dst=d, **k)
    c, s, lo = '${ADDRESSES.client}', '${ADDRESSES.server}', '127.0.0.1'
    udp, data = UDP(sport=4000, dport=${PORT}), Raw(b'x' * 8)
    every = 'ff:ff:ff:ff:ff:ff'
    whole = IP(src=c, dst=lo, id=7) / udp / Raw(b'y' * 64)
    return [
        e() / IP(src=c, dst=lo) / udp / data,
        e() / IP(src=s, dst=lo) / udp / data,
        e() / IP(src=lo, dst=lo) / udp / data,
        e() / IP(src='127.9.9.9', dst=lo) / udp / data,
        e() / IP(src='${ADDRESSES.nodeLan}', dst=lo) / udp / data,
        e() / IP(src=c, dst='127.0.0.53') / udp / data,
        e() / IP(src=c, dst='127.255.255.255') / udp / data,
        e(every) / IP(src=c, dst=lo) / udp / data,
        e('01:00:5e:00:00:01') / IP(src=c, dst=lo) / udp / data,
        e() / IP(src=c, dst=lo) / TCP(sport=4001, dport=${PORT}, flags='S'),
        e() / IP(src=lo, dst=lo) / TCP(sport=4002, dport=${PORT}, flags='S'),
        e() / IP(src=c, dst=lo) / TCP(sport=4003, dport=${PORT}, flags='A'),
        e() / IP(src=c, dst=lo) / TCP(sport=4004, dport=${PORT}, flags='R'),
        e() / IP(src=c, dst=lo) / ICMP() / data,
        e() / IP(src=c, dst=lo) / ICMP(type=3, code=3) / IP(src=lo, dst=c) / UDP(sport=${PORT}, dport=4000),
        e() / IP(src=c, dst=lo, proto=47) / data,
        e() / IP(src=c, dst=lo, proto=132) / data,
        e() / IP(src=c, dst=lo, options=[IPOption(b'\\x94\\x04\\x00\\x00')]) / udp / data,
        e() / IP(src=c, dst='${ADDRESSES.nodeLan}', options=[IPOption_LSRR(routers=[lo])]) / udp / data,
        e() / IP(src=c, dst=lo, ttl=1) / udp / data,
        e() / IP(src=c, dst=lo, tos=0xff, flags='DF') / udp / data,
        *[e() / f for f in fragment(whole, fragsize=32)],
        *[e() / f for f in reversed(fragment(IP(src=c, dst=lo, id=8) / udp / Raw(b'y' * 64), fragsize=32))],
        e() / Dot1Q(vlan=0) / IP(src=c, dst=lo) / udp / data,
        e() / IP(src=c, dst='${ADDRESSES.nodeLan}') / IP(src=c, dst=lo) / udp / data,
        e() / IP(src=c, dst=lo) / UDP(sport=53, dport=${PORT}) / data,
        e() / IP(src='0.0.0.0', dst=lo) / udp / data,
        e() / IP(src='255.255.255.255', dst=lo) / udp / data,
    ]
`;
});

async function attack(): Promise<number> {
  const { client, node } = rig.topology;
  const sent = await runScapy(
    client,
    `${script}
s = conf.L2socket(iface='eth0')
frames = attacks('${await macOf(node, 'lan0')}', get_if_hwaddr('eth0'))
for frame in frames: s.send(frame)
print(len(frames))`,
  );
  // Make the client send packets for 127.0.0.0/8 to the node, so that hping3 and nmap can attack loopback
  // addresses of the node.
  await client.must('sysctl', '-qw', 'net.ipv4.conf.eth0.route_localnet=1', 'net.ipv4.conf.all.route_localnet=1');
  await client.run('ip', 'route', 'del', 'table', 'local', 'local', '127.0.0.0/8');
  await client.run('ip', 'route', 'del', 'table', 'local', 'local', '127.0.0.1');
  await client.must('ip', 'route', 'replace', '127.0.0.0/8', 'via', ADDRESSES.nodeLan, 'src', ADDRESSES.client);
  await client.run('hping3', '-q', '-S', '-c', '3', '-i', 'u20000', '-p', `${PORT}`, '127.0.0.1');
  await client.run('hping3', '-q', '-2', '-c', '3', '-i', 'u20000', '-p', `${PORT}`, '127.0.0.1');
  await client.run('hping3', '-q', '-2', '-f', '-d', '64', '-c', '3', '-i', 'u20000', '-p', `${PORT}`, '127.0.0.1');
  await client.run('nmap', '-n', '-Pn', '-sU', '-p', `${PORT}`, '--max-retries', '0', '-e', 'eth0', '127.0.0.1');
  await client.run('nmap', '-n', '-Pn', '-sS', '-p', `${PORT}`, '--max-retries', '0', '-e', 'eth0', '127.0.0.1');
  await client.run(
    '/usr/bin/python3',
    '-c',
    `
import socket
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('${ADDRESSES.client}', 0)); u.sendto(b'x', ('127.0.0.1', ${PORT}))
t = socket.socket(); t.settimeout(0.5); t.bind(('${ADDRESSES.client}', 0)); t.connect(('127.0.0.1', ${PORT}))`,
  );
  return Number(sent);
}

test('without the BPF programs and the nftables rules of Weir, the packets of `attack` reach the listeners on 127.0.0.1 of the node', async () => {
  await start({});
  await rig.node.remove();
  const { node, pinPath } = rig.topology;
  await node.must('rm', '-rf', pinPath);
  await node.must('nft', 'flush', 'ruleset');
  const end = await listen();
  expect(await attack()).toBeGreaterThan(25);
  const seen = await end();
  expect(seen.filter((line) => line.startsWith('UDP')).length).toBeGreaterThan(8);
  expect(seen).toContain('raw 6');
});

describe.each([
  ['the default settings', {}],
  ['reverse_path off', { reverse_path: 'off' }],
  ['reverse_path loose', { reverse_path: 'loose' }],
  ['police_local', { police_local: true }],
  ['direct forwarding', { forwarding: 'direct' }],
  ['forwarding by the stack', { forwarding: 'stack' }],
  ['ipv6 and non_ipv4 pass, and reverse_path off', { ipv6: 'pass', non_ipv4: 'pass', reverse_path: 'off' }],
] as const)('a node with %s', (_, dataplane) => {
  test('a node passes no packet to a listener on 127.0.0.0/8', async () => {
    await start(dataplane);
    const end = await listen();
    expect(await attack()).toBeGreaterThan(25);
    expect(await end()).toEqual([]);
    expect((await rig.stats()).drops.loopback).toBeGreaterThan(20);
  });

  test('a node passes no packet to a listener on 127.0.0.0/8 while the process of the node is dead', async () => {
    await start(dataplane);
    await rig.node.end('SIGKILL');
    const end = await listen();
    await attack();
    expect(await end()).toEqual([]);
  });
});
