import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig, policyOf } from '#test/e2e/rig.js';
import { hooksGone } from '#test/kernel/tcx.js';

const PORT = 80;
let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('trial-marks', [PORT], { dataplane: { pickup: '0s', forwarding: 'stack' } });
  await rig.put(policyOf([{ match: { proto: 'udp' } }]));
}, 120_000);
afterAll(() => rig?.remove());
afterEach(async () => {
  const { node } = rig.topology;
  await node.run('nft', 'delete', 'table', 'ip', 'wan');
  await node.run('nft', 'delete', 'table', 'inet', 'wan');
  await node.run('nft', 'delete', 'table', 'netdev', 'wan');
  for (const tool of ['iptables-legacy', 'iptables-nft']) {
    for (const table of ['mangle', 'raw', 'filter', 'nat']) await node.run(tool, '-t', table, '-F');
    await node.run(tool, '-t', 'mangle', '-X');
  }
  await rig.node.end('SIGTERM');
  await rig.node.restart();
  await rig.node.ready();
});

/**
 * Sends three datagrams of one flow, which has one conntrack entry. Returns the answers, `silent` for a
 * missing answer.
 */
async function exchange(): Promise<string> {
  const script = `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', 4242)); s.settimeout(0.4)
for n in (1, 2, 3):
    s.sendto(b'ping', ('${ADDRESSES.server}', ${PORT}))
    try: print(s.recv(100).decode(), end=' ')
    except socket.timeout: print('silent', end=' ')`;
  return (await rig.topology.client.must('/usr/bin/python3', '-c', script)).trim();
}

/**
 * Kills the process of the node and detaches the BPF programs, as a user can do with `tc` or `bpftool`. A
 * running process would attach the programs again.
 */
async function loseHooks(): Promise<void> {
  await rig.node.end('SIGKILL');
  const { pinPath, node } = rig.topology;
  for (const entry of await readdir(pinPath, { recursive: true }))
    if (/^links-\d+\/./.test(entry)) await rm(join(pinPath, entry));
  await hooksGone(node.name);
}

const chain = (name: string, rules: string): string => `chain ${name} { ${rules}\n}`;
const table = (name: string, ...chains: readonly string[]): string => `table ${name} {\n${chains.join('\n')}\n}`;
const nft = (...lines: readonly string[]): readonly string[] => [
  'nft',
  table('ip wan', ...lines.map((line, at) => chain(`c${at}`, line))),
];
const SAVE = 'ct mark set meta mark';
const at = (hook: string, priority: string): string => `type filter hook ${hook} priority ${priority};`;

/**
 * Returns an iptables rule set. Manuals of distributions, and guides for hosts with several uplinks,
 * recommend the rule sets of this trial.
 */
const iptables = (...rules: readonly string[]): readonly string[] => ['iptables', ...rules];
const RULES: Readonly<Record<string, readonly string[]>> = {
  'nft, saved at postrouting, restored at prerouting': nft(
    `${at('postrouting', 'mangle')} ${SAVE}`,
    `${at('prerouting', 'mangle')} meta mark set ct mark`,
  ),
  'nft, only for new connections, restored for established ones': nft(
    `${at('postrouting', 'mangle')} ct state new ${SAVE}`,
    `${at('prerouting', 'mangle')} ct state established,related meta mark set ct mark`,
  ),
  'nft, saved at input of forward': nft(
    `${at('forward', 'filter - 10')} ${SAVE}`,
    `${at('prerouting', 'raw + 200')} meta mark set ct mark`,
  ),
  'nft, both at forward': nft(
    `${at('forward', '-100')} ct mark 0 ${SAVE}`,
    `${at('forward', '-200')} ct mark != 0 meta mark set ct mark`,
  ),
  'nft, by a map of the uplink': nft(
    `${at('prerouting', 'mangle')} meta mark set ct mark map { 0x0 : 0x1, 0x100000 : 0x100000, 0x100001 : 0x100000, 0x1 : 0x100000 }`,
    `${at('postrouting', 'mangle')} ${SAVE}`,
  ),
  'nft, with or': nft(
    `${at('prerouting', 'mangle')} meta mark set meta mark or 0x00f00000`,
    `${at('postrouting', 'mangle')} ${SAVE}`,
  ),
  'nft, by a jump and a set of addresses': [
    'nft',
    table(
      'inet wan',
      chain('restore', 'meta mark set ct mark'),
      chain('p', `${at('prerouting', 'mangle')} ip saddr { 10.77.0.0/16 } jump restore`),
      chain('q', `${at('postrouting', 'srcnat')} ip protocol udp ${SAVE}`),
    ),
  ],
  'nft, at ingress of the device': [
    'nft',
    table('netdev wan', chain('i', 'type filter hook ingress device lan0 priority 500; meta mark set 0x00100000')),
  ],
  'nft, by notrack and a constant': nft(
    `${at('prerouting', 'raw')} notrack`,
    `${at('prerouting', 'mangle')} meta mark set 0x00100000`,
  ),
  'iptables CONNMARK, as in most guides': iptables(
    '-t mangle -A PREROUTING -j CONNMARK --restore-mark',
    '-t mangle -A POSTROUTING -j CONNMARK --save-mark',
  ),
  'iptables CONNMARK, accepting what has a mark': iptables(
    '-t mangle -A PREROUTING -j CONNMARK --restore-mark',
    '-t mangle -A PREROUTING -m mark ! --mark 0 -j ACCEPT',
    '-t mangle -A PREROUTING -i lan0 -j MARK --set-mark 1',
    '-t mangle -A PREROUTING -j CONNMARK --save-mark',
    '-t mangle -A POSTROUTING -j CONNMARK --save-mark',
  ),
  'iptables CONNMARK with masks': iptables(
    '-t mangle -A PREROUTING -j CONNMARK --restore-mark --nfmask 0x00f00000 --ctmask 0x00f00000',
    '-t mangle -A POSTROUTING -j CONNMARK --save-mark --nfmask 0x00f00000 --ctmask 0x00f00000',
  ),
  'iptables CONNMARK at forward': iptables(
    '-t mangle -A FORWARD -j CONNMARK --restore-mark',
    '-t mangle -A POSTROUTING -j CONNMARK --save-mark',
  ),
  'iptables CONNMARK of the state NEW': iptables(
    '-t mangle -A FORWARD -m conntrack --ctstate NEW -j CONNMARK --save-mark',
    '-t mangle -A PREROUTING -m conntrack --ctstate ESTABLISHED,RELATED -j CONNMARK --restore-mark',
  ),
  'iptables CONNMARK --set-xmark': iptables(
    '-t mangle -A PREROUTING -j CONNMARK --set-xmark 0x100000/0xf00000',
    '-t mangle -A PREROUTING -j CONNMARK --restore-mark',
  ),
  'iptables MARK --set-mark': iptables('-t mangle -A PREROUTING -i lan0 -j MARK --set-mark 0x100000'),
  'iptables MARK --or-mark at forward': iptables('-t mangle -A FORWARD -i lan0 -j MARK --or-mark 0xf00000'),
  'iptables MARK --xor-mark': iptables('-t mangle -A PREROUTING -i lan0 -j MARK --xor-mark 0x100000'),
  'iptables with a chain of its own': iptables(
    '-t mangle -N WAN',
    '-t mangle -A WAN -j CONNMARK --restore-mark',
    '-t mangle -A WAN -m mark --mark 0 -j MARK --set-mark 0x100002',
    '-t mangle -A WAN -j CONNMARK --save-mark',
    '-t mangle -A PREROUTING -j WAN',
    '-t mangle -A POSTROUTING -j CONNMARK --save-mark',
  ),
  'iptables by a second lap of PREROUTING in nat': iptables(
    '-t nat -A POSTROUTING -o wan0 -j CONNMARK --save-mark',
    '-t mangle -A PREROUTING -m connmark ! --mark 0 -j CONNMARK --restore-mark',
  ),
};

async function apply([tool = '', ...lines]: readonly string[], variant: string): Promise<void> {
  const { node } = rig.topology;
  if (tool === 'nft') await node.must('nft', lines.join('\n'));
  else for (const line of lines) await node.must(`${tool}-${variant}`, '-w', ...line.split(' '));
}

const cases = Object.entries(RULES).flatMap(([name, rules]) =>
  (rules[0] === 'nft' ? [''] : ['legacy', 'nft']).map(
    (variant) => [variant === '' ? name : `${name} (${variant})`, variant, rules] as const,
  ),
);

describe('the guard (nftables rules of Weir) beside other rules that set or restore its mark', () => {
  test.each(cases)(
    'the guard (nftables rules of Weir) drops packets after the BPF programs are detached, even if other rules set or restore their mark (rules: %s)',
    async (_, variant, rules) => {
      await apply(rules, variant);
      const before = await exchange();
      await loseHooks();
      expect({ before, after: await exchange() }).toEqual({ before: 'ping ping ping', after: 'silent silent silent' });
    },
  );
});

test('a rule set of this trial saves the mark bit that the guard (nftables rules of Weir) requires in the conntrack mark, so the attack of this trial works', async () => {
  await apply(RULES['iptables CONNMARK, as in most guides'] ?? [], 'nft');
  const { node } = rig.topology;
  await node.must(
    'nft',
    table('inet count', chain('f', `${at('forward', '-2147483648')} ct mark & 0x00100000 != 0 counter`)),
  );
  await exchange();
  const { stdout } = await node.run('nft', 'list', 'table', 'inet', 'count');
  await node.run('nft', 'delete', 'table', 'inet', 'count');
  expect(Number(/packets (\d+)/.exec(stdout)?.[1])).toBeGreaterThan(0);
});
