import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { ALLOWED, policyOf } from './policies.js';
import { createProbedNode, type ProbedNode } from './probed-node.js';
import { HAS_TCX, hooksGone } from './tcx.js';

let node: ProbedNode;
beforeAll(async () => {
  node = await createProbedNode('marks');
});
afterEach(async () => {
  await node.clear();
  await node.topology.node.run('nft', 'delete', 'table', 'ip', 'wan');
});
afterAll(() => node?.remove());

/**
 * Seconds to wait for replies: TIMEOUT where replies are expected, which may be late on a busy machine, and
 * SILENCE where no reply is expected.
 */
const [TIMEOUT, SILENCE] = [5, 0.4];
const REPLIES = ['ping 1', 'ping 2'];
/** The source port of the first connection. */
const FIRST_PORT = 4_242;

/**
 * Sends two datagrams from `port`: all calls with one port use the same conntrack entry. Returns the replies
 * that arrive within `timeout` seconds.
 */
async function exchange(port = FIRST_PORT, timeout = TIMEOUT): Promise<string[]> {
  const script = `
import json, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', ${port})); s.settimeout(${timeout})
replies = []
for each in (b'ping 1', b'ping 2'):
    s.sendto(each, ('${ADDRESSES.server}', ${ALLOWED}))
    try: replies.append(s.recv(100).decode())
    except socket.timeout: s.settimeout(${timeout / 2})
print(json.dumps(replies))`;
  return JSON.parse(await node.topology.client.must('/usr/bin/python3', '-c', script)) as string[];
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

describe('the guard and marks that other rules set or restore', () => {
  /**
   * Sends datagrams under the rules of each attack, on a connection for each. Then detaches the programs, and
   * sends again: without the guard these datagrams pass.
   */
  async function expectGuarded(
    attacks: readonly string[],
    put: (attack: number) => Promise<unknown>,
    remove: () => Promise<unknown>,
  ): Promise<void> {
    const run = async (timeout: number) => {
      const replies: Record<string, string[]> = {};
      for (const [at, attack] of attacks.entries()) {
        await put(at);
        replies[attack] = await exchange(FIRST_PORT + at, timeout);
        await remove();
      }
      return replies;
    };
    const each = (replies: string[]) => Object.fromEntries(attacks.map((attack) => [attack, replies]));
    node.start({ forwarding: 'stack' }).attach();
    node.putInForce(policyOf(0), 1);
    expect(await run(TIMEOUT)).toEqual(each(REPLIES));
    await loseHooks();
    expect(await run(SILENCE)).toEqual(each([]));
    await node.topology.node.must('nft', 'flush', 'ruleset');
    expect(await exchange()).toEqual(REPLIES);
  }

  test.each(['iptables-nft', 'iptables-legacy'])(
    'the guard (nftables rules) drops unclassified packets even if rules of %s set or restore the mark of Weir',
    async (iptables) => {
      const mangle = (...words: readonly string[]) => node.topology.node.must(iptables, '-t', 'mangle', ...words);
      await expectGuarded(
        IPTABLES_ATTACKS.map(([attack]) => attack),
        async (at) => {
          for (const rule of IPTABLES_ATTACKS[at]?.[1] ?? []) await mangle('-A', ...rule.split(' '));
        },
        () => mangle('-F'),
      );
    },
  );

  test('the guard (nftables rules) drops unclassified packets even if third-party nftables rules set or restore the mark of Weir', async () => {
    await expectGuarded(
      ATTACKS.map(([attack]) => attack),
      (at) => rules(...(ATTACKS[at]?.[1] ?? [])),
      () => node.topology.node.must('nft', 'delete', 'table', 'ip', 'wan'),
    );
  });

  test('the guard (nftables rules) drops unclassified packets with a restored mark after it replaced a chain of its name with another priority', async () => {
    const chain = 'type filter hook forward priority filter; meta mark & 0x100000 != 0 accept';
    await node.topology.node.must('nft', `table inet weir { chain guard { ${chain}; }; }`);
    node.start({ forwarding: 'stack' }).attach();
    node.putInForce(policyOf(0), 1);
    await rules(...(ATTACKS[0]?.[1] ?? []));
    const before = await exchange();
    await loseHooks();
    expect({ before, after: await exchange(FIRST_PORT, SILENCE) }).toEqual({ before: REPLIES, after: [] });
  });

  test('third-party rules can save, restore and match mark bits that are not in the mask of the datapath', async () => {
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
    expect([await exchange(), await exchange()]).toEqual([REPLIES, REPLIES]);
  });
});
