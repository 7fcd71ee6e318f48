import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/topology.js';
import { ALLOWED, policyOf } from './policies.js';
import { createProbedNode, type ProbedNode } from './probed-node.js';
import { HAS_TCX, hooksGone } from './tcx.js';
import { makeEarlierGuard } from './variants.js';

let node: ProbedNode;
beforeAll(async () => {
  node = await createProbedNode('marks');
}, 60_000);
afterEach(async () => {
  await node.clear();
  await node.topology.node.run('nft', 'delete', 'table', 'ip', 'wan');
});
afterAll(() => node?.remove());

/**
 * Seconds to wait for a reply: PATIENCE where a reply is expected, which may be late on a busy machine, and
 * SILENCE where no reply is expected.
 */
const [PATIENCE, SILENCE] = [5, 0.4];

/**
 * Sends one datagram from a fixed source port, so that all calls use the same conntrack entry. Returns the
 * reply, or `silent` if there is no reply within `patience` seconds.
 */
async function exchange(patience = PATIENCE): Promise<string> {
  const script = `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', 4242)); s.settimeout(${patience})
s.sendto(b'ping 1', ('${ADDRESSES.server}', ${ALLOWED}))
try: print(s.recv(100).decode())
except socket.timeout: print('silent')`;
  return (await node.topology.client.must('/usr/bin/python3', '-c', script)).trim();
}

/**
 * Detaches the BPF programs from the interfaces, as a user can do with `tc` or `bpftool`. The programs are
 * attached by pinned links, or by clsact filters before Linux 6.6.
 */
async function loseHooks(): Promise<void> {
  const { pinPath, node: place } = node.topology;
  if (!HAS_TCX) for (const name of ['lan0', 'wan0']) await place.must('tc', 'qdisc', 'del', 'dev', name, 'clsact');
  for (const entry of readdirSync(pinPath, { recursive: true }) as string[]) {
    if (/^links-\d+\/./.test(entry)) rmSync(join(pinPath, entry));
  }
  await hooksGone(place.name);
}

async function rules(...chains: readonly (readonly [string, string])[]): Promise<void> {
  const texts = chains.map(([hook, rule], at) => `chain c${at} { type filter hook ${hook}; ${rule}\n}`);
  await node.topology.node.must('nft', `table ip wan {\n${texts.join('\n')}\n}`);
}

const SAVE = 'ct mark set meta mark';
const RESTORE = 'ct mark != 0 meta mark set ct mark';
const ATTACKS: readonly (readonly [string, readonly (readonly [string, string])[]])[] = [
  [
    'saved at postrouting, restored at prerouting',
    [
      ['postrouting priority 0', SAVE],
      ['prerouting priority -150', RESTORE],
    ],
  ],
  [
    'saved at forward, restored at prerouting',
    [
      ['forward priority 0', SAVE],
      ['prerouting priority -150', RESTORE],
    ],
  ],
  ['saved and restored at prerouting', [['prerouting priority -150', `${RESTORE}; meta mark != 0 ${SAVE}`]]],
  [
    'restored at forward',
    [
      ['postrouting priority 0', SAVE],
      ['forward priority -150', RESTORE],
    ],
  ],
  [
    'restored at forward, before other chains',
    [
      ['postrouting priority 0', SAVE],
      ['forward priority -2147483647', RESTORE],
    ],
  ],
  [
    'restored as the last of prerouting',
    [
      ['postrouting priority 0', SAVE],
      ['prerouting priority 2147483646', RESTORE],
    ],
  ],
  [
    'restored directly after conntrack',
    [
      ['postrouting priority 0', SAVE],
      ['prerouting priority -199', RESTORE],
    ],
  ],
  [
    'restored without a condition',
    [
      ['postrouting priority 0', SAVE],
      ['prerouting priority -150', 'meta mark set ct mark'],
    ],
  ],
  [
    'saved and restored by bits',
    [
      ['postrouting priority 0', 'ct mark set meta mark & 0x00f00000'],
      ['prerouting priority -150', 'meta mark set ct mark & 0x00f00000'],
    ],
  ],
  ['set by a rule without conntrack', [['prerouting priority -150', 'meta mark set 0x00100000']]],
  ['set by a rule at forward', [['forward priority -150', 'meta mark set meta mark | 0x00100000']]],
  ['set in all bits', [['prerouting priority 0', 'meta mark set 0xffffffff']]],
];

const SAVED_LATE = 'POSTROUTING -j CONNMARK --save-mark';
const RESTORED = 'PREROUTING -j CONNMARK --restore-mark';
const MASKS = '--nfmask 0x00f00000 --ctmask 0x00f00000';
const IPTABLES_ATTACKS: readonly (readonly [string, readonly string[]])[] = [
  ['saved at POSTROUTING, restored at PREROUTING', [SAVED_LATE, RESTORED]],
  ['saved at FORWARD, restored by bits', [`FORWARD -j CONNMARK --save-mark ${MASKS}`, `${RESTORED} ${MASKS}`]],
  ['restored at FORWARD', [SAVED_LATE, 'FORWARD -j CONNMARK --restore-mark']],
  [
    'set if conntrack saved a mark',
    [SAVED_LATE, 'PREROUTING -m connmark --mark 0x100000/0x100000 -j MARK --or-mark 0x100000'],
  ],
  ['set at FORWARD', ['FORWARD -j MARK --or-mark 0x100000']],
];

describe('the guard (nftables rules of Weir) drops packets that the datapath has not classified, even if other rules set or restore their mark', () => {
  describe.each(['iptables-nft', 'iptables-legacy'])('with rules of %s', (iptables) => {
    afterEach(() => node.topology.node.must(iptables, '-t', 'mangle', '-F'));

    test.each(IPTABLES_ATTACKS)('if the mark is %s', async (_, appended) => {
      node.start({ forwarding: 'stack' }).attach();
      node.putInForce(policyOf(0), 1);
      for (const rule of appended) await node.topology.node.must(iptables, '-t', 'mangle', '-A', ...rule.split(' '));
      const before = [await exchange(), await exchange()];
      await loseHooks();
      const after = [await exchange(SILENCE), await exchange(SILENCE)];
      expect({ before, after }).toEqual({ before: ['ping 1', 'ping 1'], after: ['silent', 'silent'] });
    });
  });

  test.each(ATTACKS)('with rules of nftables, if the mark is %s', async (_, chains) => {
    node.start({ forwarding: 'stack' }).attach();
    node.putInForce(policyOf(0), 1);
    await rules(...chains);
    const before = [await exchange(), await exchange()];
    await loseHooks();
    const after = [await exchange(SILENCE), await exchange(SILENCE)];
    expect({ before, after }).toEqual({ before: ['ping 1', 'ping 1'], after: ['silent', 'silent'] });
  });

  test('also after the guard has replaced the guard of an earlier build, which accepted each packet with the mark', async () => {
    makeEarlierGuard();
    node.start({ forwarding: 'stack' }).attach();
    node.putInForce(policyOf(0), 1);
    await rules(...(ATTACKS[0]?.[1] ?? []));
    const before = await exchange();
    await loseHooks();
    expect({ before, after: await exchange(SILENCE) }).toEqual({ before: 'ping 1', after: 'silent' });
  });

  test("(exception: other rules can save, restore and match mark bits that are not in the datapath's mask)", async () => {
    node.start({ forwarding: 'stack' }).attach();
    node.putInForce(policyOf(0), 1);
    await rules(
      ['postrouting priority 0', SAVE],
      [
        'prerouting priority -150',
        'ct mark & 0x7 != 0x7 meta mark set 0x7; ct mark & 0x7 == 0x7 meta mark set ct mark',
      ],
      ['forward priority 100', 'meta mark & 0xff0fffff == 0x7 accept; drop'],
    );
    expect([await exchange(), await exchange(), await exchange()]).toEqual(['ping 1', 'ping 1', 'ping 1']);
  });
});
