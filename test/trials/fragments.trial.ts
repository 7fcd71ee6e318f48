import { afterEach, describe, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig, policyOf } from '#test/e2e/rig.js';
import { jsonAtEnd } from './json-at-end.js';
import { macOf, runScapy } from './scapy.js';

const PORT = 9_001;
let rig: NodeRig;
afterEach(() => rig?.remove());

async function start(dataplane: Readonly<Record<string, unknown>>): Promise<void> {
  rig = await createRig('trial-frag', [80], { dataplane: { pickup: '0s', ...dataplane } });
  const { node, server } = rig.topology;
  await node.must('ip', 'link', 'add', 'ext0', 'type', 'veth', 'peer', 'name', 'ext0', 'netns', server.name);
  await node.must('ip', 'addr', 'add', '10.77.9.1/24', 'dev', 'ext0');
  await server.must('ip', 'addr', 'add', '10.77.9.2/24', 'dev', 'ext0');
  for (const space of [node, server]) await space.must('ip', 'link', 'set', 'ext0', 'up');
  for (const name of ['all', 'lan0', 'wan0', 'ext0'])
    await node.must('sysctl', '-qw', `net.ipv4.conf.${name}.rp_filter=0`);
  await rig.put(policyOf([{ match: {} }], { sources: { cidrs: ['10.77.0.0/16'] } }));
}

/**
 * Records fragments on the server. The returned function returns the numbers of the datagrams whose three
 * fragments all passed the node. The test counts fragments, since the server may reassemble a datagram from
 * forged fragments.
 */
async function receive(): Promise<() => Promise<readonly number[]>> {
  const child = rig.topology.server.start('/usr/bin/python3', [
    '-c',
    `
import json, select, socket, struct, sys
p = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800)); p.bind(('eth0', 0x800)); seen = {}
print('ready', flush=True)
while True:
    ready, _, _ = select.select([p, sys.stdin], [], [])
    if p in ready:
        f, a = p.recvfrom(9000)
        if a[2] == socket.PACKET_OUTGOING or f[1] != 0x28: continue
        number, offset = struct.unpack('!HH', f[4:8])
        seen.setdefault(number - 1000, set()).add(offset & 0x1fff)
    else: print(json.dumps([n for n, parts in seen.items() if len(parts) == 3]), flush=True); break`,
  ]);
  await firstLine(child);
  return () => jsonAtEnd<number[]>(child, 500);
}

/**
 * A Python function that returns forged fragments with the addresses, protocol and identification of the
 * victim's datagram. The attacker sends one kind of forgery between the fragments of each datagram.
 */
const FORGERIES = `
def forgeries(e, c, s, i):
    ip = lambda frag, more, **k: IP(src=c, dst=s, id=i, proto=17, frag=frag, flags='MF' if more else 0, **k)
    x = lambda n: Raw(b'x' * n)
    return [
        ('the first again', e / ip(0, 1) / x(480)),
        ('a longer first', e / ip(0, 1) / x(800)),
        ('a first with other ports', e / ip(0, 1) / UDP(sport=1, dport=80) / x(472)),
        ('a tiny first', e / ip(0, 1) / x(8)),
        ('a first of 4 bytes', e / ip(0, 1) / x(4)),
        ('the middle', e / ip(60, 1) / x(480)),
        ('half of the middle', e / ip(60, 1) / x(240)),
        ('across first and middle', e / ip(30, 1) / x(480)),
        ('across middle and last', e / ip(90, 1) / x(480)),
        ('the last', e / ip(120, 0) / x(452)),
        ('another end', e / ip(200, 0) / x(8)),
        ('an end in the middle', e / ip(70, 0) / x(8)),
        ('an empty end', e / ip(60, 0)),
        ('behind the end', e / ip(1000, 1) / x(64)),
        ('at the end of all', e / ip(8189, 0) / x(7)),
        ('with options', e / ip(60, 1, options=[IPOption(b'\\x94\\x04\\x00\\x00')]) / x(480)),
        ('with another TTL and TOS', e / ip(60, 1, ttl=1, tos=0xff) / x(480)),
        ('with a wrong checksum', e / ip(60, 1, chksum=1) / x(480)),
        ('all of it in one', e / IP(src=c, dst=s, id=i) / UDP(sport=9, dport=${PORT}) / x(100)),
        ('an ICMP error about it', e / IP(src=s, dst=c) / ICMP(type=11, code=1) / ip(0, 1) / x(8)),
    ]
`;

const ATTACKERS = ['wan0', 'ext0'] as const;
describe.each(
  (['strict', 'loose', 'off'] as const).flatMap((mode) =>
    (['stack', 'direct'] as const).map((forwarding) => [mode, forwarding] as const),
  ),
)('a node with reverse_path %s and forwarding %s', (reversePath, forwarding) => {
  test.each(ATTACKERS)(
    'a node passes all fragments of the real sender while forged fragments arrive on the interface %s',
    async (by) => {
      await start({ reverse_path: reversePath, forwarding });
      const { client, node, server } = rig.topology;
      const end = await receive();
      // For each datagram, the attacker sends a forged fragment after the first and after the second fragment
      // of the victim.
      const names = JSON.parse(
        await runScapy(
          server,
          `${FORGERIES}
print(json.dumps([n for n, _ in forgeries(Ether(), '${ADDRESSES.client}', '${ADDRESSES.server}', 1)]))`,
        ),
      ) as string[];
      const device = by === 'wan0' ? 'eth0' : 'ext0';
      const attacker = server.start('/usr/bin/python3', [
        '-c',
        `
import logging, sys
logging.getLogger('scapy').setLevel(logging.CRITICAL)
from scapy.all import *
${FORGERIES}
s = conf.L2socket(iface='${device}'); e = Ether(src=get_if_hwaddr('${device}'), dst='${await macOf(node, by)}')
print('ready', flush=True)
for line in sys.stdin:
    number = int(line)
    frame = forgeries(e, '${ADDRESSES.client}', '${ADDRESSES.server}', 1000 + number)[number][1]
    s.send(frame); s.send(frame); print('sent', flush=True)`,
      ]);
      await firstLine(attacker);
      const victim = client.start('/usr/bin/python3', [
        '-c',
        `
import logging, sys
logging.getLogger('scapy').setLevel(logging.CRITICAL)
from scapy.all import *
s = conf.L2socket(iface='eth0'); e = Ether(src=get_if_hwaddr('eth0'), dst='${await macOf(node, 'lan0')}')
print('ready', flush=True)
for line in sys.stdin:
    number, part = map(int, line.split())
    whole = IP(src='${ADDRESSES.client}', dst='${ADDRESSES.server}', tos=0x28, id=1000 + number) / UDP(sport=9, dport=${PORT}) / Raw(b'%04d' % number + b'v' * 1400)
    s.send(e / fragment(whole, fragsize=480)[part]); print('sent', flush=True)`,
      ]);
      await firstLine(victim);
      const say = (child: typeof victim, line: string): Promise<void> =>
        new Promise((resolve) => {
          child.stdout?.once('data', () => resolve());
          child.stdin?.write(`${line}\n`);
        });
      for (const number of names.keys()) {
        await say(victim, `${number} 0`);
        await say(attacker, `${number}`);
        await say(victim, `${number} 1`);
        await say(attacker, `${number}`);
        await say(victim, `${number} 2`);
      }
      const whole = await end();
      const destroyed = names.filter((_, number) => !whole.includes(number));
      expect(destroyed).toEqual([]);
    },
  );
});
