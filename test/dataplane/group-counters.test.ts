import { afterEach, expect, test } from 'vitest';
import { COUNTED_VERDICTS, GROUP_COUNTS } from '#contracts/datapath/datapath.js';
import { IPPROTO, type Packet, type Policy } from '#contracts/policy/policy-model.js';
import { GroupCounters } from '#dataplane/flows/hits/group-counters.js';
import { Hits } from '#dataplane/flows/hits/hits.js';
import { compile } from '#policy/compile/compile.js';
import { group, packet, policy, rule } from '#test/policy/sample.js';
import { MAX_FRAME, TCP, writeFrame } from './frame.js';
import { type Loaded, loadForTest } from './loaded.js';

let kernel: Loaded;
afterEach(() => kernel?.close());

/**
 * Returns packets and bytes of each group with counts of its own, of the other groups (`…`) and of the
 * default of the policy (`-`), without the counts that are 0.
 */
function counted(): Record<string, Record<string, readonly [packets: number, bytes: number]>> {
  const traffic = kernel.trafficStatistics.groupTraffic();
  if (traffic === null) throw new Error('nothing is counted');
  const { groups, counts } = traffic;
  return Object.fromEntries(
    [...groups, '…', '-'].map((name, row) => {
      const verdicts = COUNTED_VERDICTS.map((verdict, column) => {
        const at = row * GROUP_COUNTS + 2 * column;
        return [verdict, [counts[at] ?? 0, counts[at + 1] ?? 0]] as const;
      });
      return [name, Object.fromEntries(verdicts.filter(([, [packets]]) => packets > 0))];
    }),
  );
}

function load(limit: number, given: Policy): void {
  kernel = loadForTest({}, undefined, new GroupCounters(limit));
  kernel.activate(compile(given));
}

const udpFrom = (source: string, destinationPort = 53): Packet<number> =>
  packet({ source, protocol: IPPROTO.udp, destinationPort });
const lan = (id: string, network: number, rules = [rule({ id: 'all' })]) =>
  group([`10.${network}.0.0/16`], rules, { id });

const UDP_BYTES = writeFrame(new Uint8Array(MAX_FRAME), udpFrom('10.1.0.7'));
const TCP_BYTES = writeFrame(new Uint8Array(MAX_FRAME), packet(), { tcpFlags: TCP.syn });

test('a group counter counts packets and bytes of a source group by the verdict of the rule or default that decided', () => {
  const rules = [
    rule({ id: 'web', protocol: IPPROTO.tcp }),
    rule({ id: 'dns', protocol: IPPROTO.udp, ports: ['53'], action: 'deny' }),
    rule({ id: 'ntp', protocol: IPPROTO.udp, ports: ['123'], action: 'deny', mode: 'audit' }),
  ];
  load(5, policy([group(['10.1.0.0/16'], rules, { id: 'office', defaultAction: 'deny' })]));
  kernel.runPacket(packet({ source: '10.1.0.7' }), { tcpFlags: TCP.syn });
  for (const port of [53, 53, 123, 80]) kernel.runPacket(udpFrom('10.1.0.7', port));
  kernel.runPacket(udpFrom('10.2.0.7'));
  expect(counted()).toEqual({
    office: { allow: [1, TCP_BYTES], deny: [3, 3 * UDP_BYTES], audit: [1, UDP_BYTES] },
    '…': {},
    '-': { deny: [1, UDP_BYTES] },
  });
});

test('the first source groups in the order of evaluation get their own counter rows, and one row adds up all other groups', () => {
  load(2, policy([lan('a', 1), lan('b', 2), lan('c', 3), lan('d', 4)]));
  for (const network of [1, 2, 2, 3, 3, 3, 4]) kernel.runPacket(udpFrom(`10.${network}.0.7`));
  expect(counted()).toEqual({
    a: { allow: [1, UDP_BYTES] },
    b: { allow: [2, 2 * UDP_BYTES] },
    '…': { allow: [4, 4 * UDP_BYTES] },
    '-': {},
  });
  expect(kernel.trafficStatistics.groupTraffic()?.unlisted).toBe(2);
});

test('a source group keeps its counter row while it is in the policy, and another group gets the row of a removed group', () => {
  load(2, policy([lan('a', 1), lan('b', 2), lan('c', 3)]));
  for (const network of [1, 2, 3]) kernel.runPacket(udpFrom(`10.${network}.0.7`));
  expect(Object.keys(counted())).toEqual(['a', 'b', '…', '-']);
  kernel.activate(compile(policy([lan('new', 5), lan('c', 3), lan('b', 2)])), 2);
  kernel.runPacket(udpFrom('10.5.0.7'));
  expect(counted()).toEqual({
    b: { allow: [1, UDP_BYTES] },
    new: { allow: [1, UDP_BYTES] },
    '…': { allow: [1, UDP_BYTES] },
    '-': {},
  });
});

test('a group counter never decreases if rules are removed or changed from allow to deny, and includes packets that no request had read', () => {
  load(1, policy([lan('a', 1, [rule({ id: 'dns', ports: ['53'] }), rule({ id: 'ntp', ports: ['123'] })])]));
  kernel.runPacket(udpFrom('10.1.0.7', 53));
  kernel.stage(compile(policy([lan('a', 1, [rule({ id: 'dns', ports: ['53'], action: 'deny' })])])));
  for (const port of [53, 123]) kernel.runPacket(udpFrom('10.1.0.7', port));
  kernel.flip();
  kernel.trafficStatistics.flushIdleSlot();
  kernel.runPacket(udpFrom('10.1.0.8', 53));
  expect(counted()).toMatchObject({ a: { allow: [3, 3 * UDP_BYTES], deny: [1, UDP_BYTES] } });
});

test('a group counter keeps its counts when the process opens a datapath with smaller maps', () => {
  const counters = new GroupCounters(1);
  kernel = loadForTest({ hitCapacity: 64 }, undefined, counters);
  const rules = Array.from({ length: 40 }, (_, number) => rule({ id: `r${number}`, ports: [`${number + 1}`] }));
  kernel.activate(compile(policy([lan('a', 1, rules)])));
  kernel.runPacket(udpFrom('10.1.0.7', 40));
  expect(counted()).toMatchObject({ a: { allow: [1, UDP_BYTES] } });
  kernel.close();
  kernel = loadForTest({ hitCapacity: 8 }, undefined, counters);
  kernel.activate(compile(policy([lan('a', 1)])));
  kernel.runPacket(udpFrom('10.1.0.7', 40));
  expect(counted()).toMatchObject({ a: { allow: [2, 2 * UDP_BYTES] } });
});

test('a group counter starts at 0 in a process that takes over the hit counters of the previous process', () => {
  load(1, policy([lan('a', 1)]));
  kernel.runPacket(udpFrom('10.1.0.7'));
  const { ruleNameHistory } = kernel.trafficStatistics;
  const inForce = ruleNameHistory.inForce;
  if (inForce === undefined) throw new Error('nothing is in force');
  const counters = new GroupCounters(1);
  const hits = new Hits({ hits: kernel.object.mapFd('hits'), rankHits: kernel.object.mapFd('rank_hits') });
  kernel.sweep();
  counters.follow(hits);
  counters.collect(hits, inForce);
  expect(counters.traffic().counts.every((count) => count === 0)).toBe(true);
  kernel.runPacket(udpFrom('10.1.0.8'));
  kernel.sweep();
  counters.collect(hits, inForce);
  expect(counters.traffic().counts.slice(0, 2)).toEqual(Float64Array.of(1, UDP_BYTES));
  hits.unmap();
});
