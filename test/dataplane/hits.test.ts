import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CapacityExceeded, type HitReport } from '#contracts/datapath/datapath.js';
import { COUNTER_INDEX, DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import type { DecidedHit } from '#contracts/datapath/grant-messages.js';
import { IPPROTO, type Packet, type Policy } from '#contracts/policy/policy-model.js';
import type { Decider } from '#contracts/policy/rule-names.js';
import { rankOf } from '#contracts/policy/verdict-word.js';
import { Hits } from '#dataplane/flows/hits/hits.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { MAPS } from '#dataplane/loader/bpf-object.js';
import { readCounters } from '#dataplane/loader/counters.js';
import { mapsOf } from '#dataplane/object/loaded-object.js';
import { compile } from '#policy/compile/compile.js';
import { deciderAt, ruleNamesOfRecord } from '#policy/model/rules/rule-names.js';
import { withChangedGroup } from '#test/policy/changed-groups.js';
import { generatePolicy, packetGenerator } from '#test/policy/generate.js';
import { group, icmp, packet, policy, rule } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { MAX_FRAME, TCP, writeFrame } from './frame.js';
import { DROPPED, type Loaded, loadForTest, PASSED } from './loaded.js';

const EVERYTHING = { groups: [], rules: [], unused: undefined, from: 0, limit: 1_000_000 } as const;
const WEB = { destinationPorts: [{ low: 443, high: 443 }] };
const tcp = packet();
const dns = packet({ protocol: IPPROTO.udp, destinationPort: 53 });

let kernel: Loaded;
let inForce: Policy;
afterEach(() => kernel?.close());

function activate(given: Policy): void {
  inForce = given;
  kernel.activate(compile(given));
}

function back({ source, destination, sourcePort, destinationPort, ...rest }: Packet<number>): Packet<number> {
  const icmpType = rest.icmpType === 8 ? 0 : rest.icmpType;
  const ports = { sourcePort: destinationPort, destinationPort: sourcePort };
  return { ...rest, ...ports, icmpType, source: destination, destination: source };
}

const nameOf = (decider: Decider): string =>
  decider.kind === 'policy_default' ? '-' : `${decider.group}/${decider.kind === 'rule' ? decider.rule : '-'}`;

function report(): HitReport {
  const found = kernel.trafficStatistics.hits(EVERYTHING);
  if (found === null) throw new Error('nothing is in force');
  return found;
}

/**
 * Returns the number of packets that each rule and default in force has decided, by `group/rule`; `-` stands
 * for a default.
 */
function packets(): Record<string, number> {
  return Object.fromEntries(report().items.map((item) => [nameOf(item.decider), Number(item.packets)]));
}

/**
 * Returns the packets and bytes that rules and defaults decided, summed from the counters of the datapath.
 */
function decided(): { packets: bigint; bytes: bigint } {
  const counters = readCounters(kernel.object.mapFd('counters'));
  const { allow, audit, drops } = COUNTER_INDEX;
  const { policy_deny, service_plane_absent, node_uninspected } = DROP_REASON;
  const indexes = [
    allow,
    audit,
    ...[policy_deny, service_plane_absent, node_uninspected].map((reason) => drops + reason),
  ];
  const sum = (of: 'packets' | 'bytes') => indexes.reduce((total, index) => total + (counters[index]?.[of] ?? 0n), 0n);
  return { packets: sum('packets'), bytes: sum('bytes') };
}

const clients = (rules: Parameters<typeof rule>[0][], more: Partial<Policy['groups'][0]> = {}): Policy =>
  policy([group(['10.0.0.0/8'], rules.map(rule), { id: 'clients', ...more })]);

describe('hit counters', () => {
  beforeEach(() => {
    kernel = loadForTest();
  });

  test('the hit counters of rules count both directions of a flow, denied packets, and packets that a default decides', () => {
    activate(
      clients(
        [
          { id: 'web', protocol: 6, ...WEB },
          { id: 'none', protocol: 17, action: 'deny' },
        ],
        { defaultAction: 'allow' },
      ),
    );
    for (const [given, tcpFlags] of [
      [tcp, TCP.syn],
      [back(tcp), TCP.syn | TCP.ack],
      [tcp, TCP.ack],
      [tcp, TCP.psh | TCP.ack],
      [back(tcp), TCP.ack],
      [dns, 0],
      [dns, 0],
      [icmp(8), 0],
      [packet({ source: '192.0.2.9' }), TCP.syn],
    ] as const) {
      kernel.runPacket(given, { tcpFlags });
    }
    expect(packets()).toEqual({ 'clients/web': 5, 'clients/none': 2, 'clients/-': 1, '-': 1 });
  });

  test('the hit counters of rules do not count packets that no rule decides, because they are out of state or malformed', () => {
    activate(clients([{ id: 'web', protocol: 6 }]));
    expect(kernel.runPacket(tcp, { tcpFlags: TCP.ack }).returned).toBe(DROPPED);
    expect(kernel.runPacket(tcp, { version: 5 }).returned).toBe(DROPPED);
    expect(kernel.counted()).toEqual({ drop_out_of_state: 1, drop_malformed: 1 });
    expect(packets()).toEqual({ 'clients/web': 0, '-': 0 });
  });

  test('the hit counters of rules count an ICMP error for the rule of the flow that the error quotes', () => {
    activate(clients([{ id: 'web', protocol: 6 }]));
    const quoted = new Uint8Array(MAX_FRAME);
    writeFrame(quoted, tcp);
    kernel.runPacket(tcp);
    const length = writeFrame(kernel.frame, back(icmp(3, 1)), { payloadBytes: 28 });
    kernel.frame.set(quoted.subarray(14, 42), 42);
    expect(kernel.runFrame(length).returned).toBe(PASSED);
    expect(kernel.counted()).toEqual({ allow: 2, half_opened: 1, icmp_related: 1 });
    expect(packets()).toEqual({ 'clients/web': 2, '-': 0 });
  });

  test('the hit counters of rules count earlier packets of a flow for the earlier rule after a new policy classifies the flow by another rule', () => {
    activate(clients([{ id: 'first', protocol: 17 }]));
    for (let count = 0; count < 3; count++) kernel.runPacket(dns);
    activate(
      clients([
        { id: 'second', protocol: 17 },
        { id: 'first', protocol: 17 },
      ]),
    );
    for (let count = 0; count < 5; count++) kernel.runPacket(dns);
    expect(packets()).toEqual({ 'clients/second': 5, 'clients/first': 3, '-': 0 });
  });

  test('the hit counter of a rule is kept if the rule is removed and returns, and is not given to another rule at the same position', () => {
    activate(clients([{ id: 'dns', protocol: 17 }]));
    kernel.runPacket(dns);
    activate(clients([{ id: 'names', protocol: 17 }]));
    expect(packets()).toEqual({ 'clients/names': 0, '-': 0 });
    activate(clients([{ id: 'dns', protocol: 17 }]));
    expect(packets()).toEqual({ 'clients/dns': 1, '-': 0 });
  });

  test('the hit counters of rules count every packet for the deciding rule, for random policies, packets, policy changes and removed flows', async () => {
    const seed = seedOf(4_242);
    const random = new Random(seed);
    const expected = new Map<string, number>();
    const seen: Packet<number>[] = [];
    for (let number = 0; number < 30; number++) {
      activate(generatePolicy(random, { groups: 8, rules: 6 }));
      const { ruleNames } = compile(inForce);
      const next = packetGenerator(random, inForce);
      for (let count = 0; count < 200; count++) {
        const isNew = seen.length === 0 || random.chance(0.3);
        const tried = isNew ? next() : random.pick(seen);
        if (isNew) seen.push(tried);
        if (seen.length > 100) seen.shift();
        const before = decided().packets;
        const tcpFlags = isNew || random.chance(0.1) ? TCP.syn : TCP.ack;
        const { word } = kernel.runPacket(random.chance(0.5) ? tried : back(tried), { tcpFlags });
        if (decided().packets === before) continue;
        const name = nameOf(deciderAt(ruleNames, rankOf(word)));
        expected.set(name, (expected.get(name) ?? 0) + 1);
      }
      if (random.chance(0.2))
        await kernel.trafficStatistics.cutFlows({ filter: anyFlow(), after: null, limit: 10_000 });
      const wanted = report().items.map(({ decider }) => [nameOf(decider), expected.get(nameOf(decider)) ?? 0]);
      expect({ seed, number, ...packets() }).toEqual({ seed, number, ...Object.fromEntries(wanted) });
    }
    const { rejudged, flows } = { rejudged: kernel.counted().flows_rejudged, flows: kernel.counted().flows_opened };
    console.log(`hits: ${decided().packets} packets, ${flows} flows, ${rejudged} judged again, seed ${seed}`);
    expect(decided().packets).toBe(BigInt([...expected.values()].reduce((sum, count) => sum + count, 0)));
    expect([rejudged, flows].map((count) => (count ?? 0) > 50)).toEqual([true, true]);
  });
});

test('the bytes of the hit counter of a rule are the lengths of the frames, and the last hit is the time of the last packet', () => {
  kernel = loadForTest();
  activate(clients([{ id: 'dns', protocol: 17 }]));
  const before = Date.now();
  kernel.runPacket(dns, { payloadBytes: 100 });
  kernel.runPacket(dns, { payloadBytes: 50 });
  const [used, unused] = report().items;
  expect([used?.bytes, unused?.bytes]).toEqual([decided().bytes, 0n]);
  expect([used?.unusedSinceMs, unused?.lastMs]).toEqual([null, null]);
  // The time of a hit comes from the coarse clock of the kernel, which is a few milliseconds late, and is
  // rounded to about one millisecond.
  expect(used?.lastMs).toBeGreaterThan(before - 20);
  expect(used?.lastMs).toBeLessThanOrEqual(Date.now());
  expect(unused?.unusedSinceMs).toBeGreaterThan(before - 5_000);
});

describe('hits of the service plane and of the DNS proxy', () => {
  const RECORD = { id: 'a-record', revision: 1 };
  const program = (given: Policy) => {
    const compiled = compile(given);
    return { ...compiled, ruleNames: ruleNamesOfRecord(compiled.ruleNames, RECORD) };
  };
  const decide = (generation: number, by: DecidedHit['by'], count = 1, lastNs = process.hrtime.bigint()): void =>
    kernel.trafficStatistics.addHits([{ generation, by, count, lastNs }]);

  test('rule hits that the service plane or DNS proxy reports count for the rule that the message names by its rank (place in the policy) or by its name, with and without a policy record', () => {
    kernel = loadForTest();
    const random = new Random(seedOf(70_117));
    for (const [number, compileAs] of [compile, program, compile, program].entries()) {
      inForce = generatePolicy(random, { groups: 8, rules: 6 });
      const compiled = compileAs(inForce);
      kernel.activate(compiled, number + 1);
      const before = report().items.map(({ packets: counted }) => Number(counted));
      for (const rank of before.keys()) {
        decide(number + 1, rank, 2);
        decide(number + 1, deciderAt(compiled.ruleNames, rank), rank);
      }
      const added = report().items.map(({ packets: counted }, rank) => Number(counted) - (before[rank] ?? 0));
      expect({ number, added }).toEqual({ number, added: before.map((_, rank) => rank + 2) });
    }
  });

  test('rule hits that the service plane or DNS proxy reports add packets to a hit counter but no bytes, and keep the later time of the last hit', () => {
    kernel = loadForTest();
    activate(clients([{ id: 'dns', protocol: 17 }]));
    kernel.runPacket(dns);
    const [packet] = report().items;
    decide(1, { kind: 'rule', group: 'clients', rule: 'dns' }, 3, 1n);
    expect(report().items[0]).toEqual({ ...packet, packets: 4n, lastMs: expect.closeTo(packet?.lastMs ?? 0, -1) });
    decide(1, 1, 1, process.hrtime.bigint());
    expect(report().items[1]).toMatchObject({ packets: 1n, bytes: 0n, unusedSinceMs: null });
  });

  test('rule hits that the service plane or DNS proxy reports count for the policy that decided, even if it is not yet (staged) or no longer in force', () => {
    kernel = loadForTest();
    const [before, after] = [clients([{ id: 'dns', protocol: 17 }]), clients([{ id: 'new', protocol: 17 }])];
    kernel.activate(program(before), 1);
    kernel.trafficStatistics.stage(kernel.trafficStatistics.find(program(after).ruleNames), 2);
    decide(2, 0, 5);
    kernel.trafficStatistics.ruleNameHistory.unstage();
    kernel.activate(program(after), 2);
    decide(1, 0, 7);
    decide(3, 0, 11);
    decide(2, 99, 13);
    decide(2, { kind: 'rule', group: 'clients', rule: 'gone' }, 17);
    expect(packets()).toEqual({ 'clients/new': 5, '-': 0 });
    kernel.activate(program(before), 4);
    expect(packets()).toEqual({ 'clients/dns': 7, '-': 0 });
  });

  test('rule hits that the service plane or DNS proxy reports are discarded if the hit counter of the rule now belongs to another rule', () => {
    kernel = loadForTest({ hitCapacity: 6 });
    for (const [number, ids] of [['a', 'b'], ['c'], ['d', 'e']].entries())
      kernel.activate(compile(clients(ids.map((id) => ({ id, protocol: 17 })))), number + 1);
    decide(1, 0);
    decide(1, { kind: 'rule', group: 'clients', rule: 'b' });
    expect(packets()).toEqual({ 'clients/d': 0, 'clients/e': 0, '-': 0 });
  });
});

describe('hit report', () => {
  beforeEach(() => {
    kernel = loadForTest();
    activate(
      policy([
        group(['10.0.0.0/8'], [rule({ id: 'web', protocol: 6 }), rule({ id: 'dns', protocol: 17 })], { id: 'lan' }),
        group(['10.0.0.0/8'], [rule({ id: 'web', protocol: 6 })], { id: 'büro', defaultAction: 'deny' }),
      ]),
    );
    kernel.runPacket(tcp);
  });

  const names = (query: Partial<typeof EVERYTHING> | object): string[] =>
    (kernel.trafficStatistics.hits({ ...EVERYTHING, ...query })?.items ?? []).map(({ decider }) => nameOf(decider));

  test('the report of rule hits lists rules in the order of the policy', () => {
    expect(names({})).toEqual(['lan/web', 'lan/dns', 'büro/web', 'büro/-', '-']);
  });

  test('the report of rule hits lists only the requested groups and rules, and on request only used or only unused rules', () => {
    expect(names({ groups: ['büro'] })).toEqual(['büro/web', 'büro/-']);
    expect(names({ rules: ['web', 'dns'] })).toEqual(['lan/web', 'lan/dns', 'büro/web']);
    expect(names({ groups: ['lan', 'nobody'], rules: ['web'] })).toEqual(['lan/web']);
    expect(names({ unused: true, rules: ['web'] })).toEqual(['büro/web']);
    expect(names({ unused: false })).toEqual(['lan/web']);
  });

  test('the report of rule hits continues after the last rule of the previous page', () => {
    const pages: string[][] = [];
    for (let from: number | null = 0; from !== null; ) {
      const page: HitReport | null = kernel.trafficStatistics.hits({ ...EVERYTHING, from, limit: 2 });
      pages.push((page?.items ?? []).map(({ decider }) => nameOf(decider)));
      from = page?.next ?? null;
    }
    expect(pages).toEqual([['lan/web', 'lan/dns'], ['büro/web', 'büro/-'], ['-']]);
  });
});

describe('a process that takes over pinned BPF maps', () => {
  test('a process that takes over pinned BPF maps counts hits for the same rules as the previous process, also for older flows', () => {
    const given = clients([
      { id: 'dns', protocol: 17 },
      { id: 'web', protocol: 6 },
    ]);
    kernel = loadForTest();
    activate(given);
    const since = report().sinceMs;
    for (let count = 0; count < 4; count++) kernel.runPacket(dns);
    const before = kernel;
    kernel = loadForTest({}, { maps: mapsOf(before.object, MAPS), word: 0, deadline: null });
    before.close();
    expect(kernel.trafficStatistics.hits(EVERYTHING)).toBeNull();
    kernel.runPacket(dns);
    activate(given);
    kernel.runPacket(tcp);
    expect(packets()).toEqual({ 'clients/dns': 5, 'clients/web': 1, '-': 0 });
    expect(Math.abs(report().sinceMs - since)).toBeLessThan(2);
  });
});

test('`Hits.find` returns the same hit counters without a hint, with those of a similar policy as a hint, and with a partly wrong hint', () => {
  kernel = loadForTest({ hitCapacity: 65_536 });
  const hits = new Hits({ hits: kernel.object.mapFd('hits'), rankHits: kernel.object.mapFd('rank_hits') });
  try {
    const random = new Random(seedOf(70_067));
    let changed = generatePolicy(random, { groups: 20, rules: 12 });
    let like = hits.fill(0, hits.find(compile(changed).ruleNames), []);
    for (let step = 0; step < 200; step++) {
      changed = withChangedGroup(random, changed);
      const { ruleNames } = compile(changed);
      const found = hits.find(ruleNames);
      expect({ step, found: hits.find(ruleNames, like) }).toEqual({ step, found });
      const guess = Uint32Array.from(like, (entry) => (random.chance(0.5) ? entry : random.below(70_000)));
      expect({ step, found: hits.find(ruleNames, guess) }).toEqual({ step, found });
      like = hits.fill(step % 2 === 0 ? 0 : 1, found, []);
      expect(like).not.toContain(0);
    }
  } finally {
    hits.unmap();
  }
});

describe('a full table of hit counters of rules', () => {
  const udp = (...ids: string[]): Policy => clients(ids.map((id) => ({ id, protocol: 17 })));

  test('a full table of hit counters of rules gives a new rule the counter of the least recently hit rule, and keeps the counters of rules in force', () => {
    kernel = loadForTest({ hitCapacity: 10 });
    activate(udp('a', 'b', 'c'));
    kernel.runPacket(dns);
    activate(udp('d', 'a', 'e'));
    kernel.runPacket(dns);
    kernel.runPacket(dns);
    activate(udp('f', 'g'));
    expect(packets()).toEqual({ 'clients/f': 0, 'clients/g': 0, '-': 0 });
    activate(udp('d', 'a'));
    expect(packets()).toEqual({ 'clients/d': 2, 'clients/a': 1, '-': 0 });
  });

  test('a full table of hit counters of rules does not count packets of an open flow for a new rule that reuses the counter of the removed rule', () => {
    kernel = loadForTest({ hitCapacity: 6 });
    activate(udp('a', 'b'));
    for (let count = 0; count < 3; count++) kernel.runPacket(dns);
    activate(udp('c'));
    activate(udp('d', 'e'));
    expect(packets()).toEqual({ 'clients/d': 0, 'clients/e': 0, '-': 0 });
    expect(kernel.flowIn('half_open')?.epoch).toBe(1);
  });

  test('a full table of hit counters of rules gives counters to all rules of a new policy although an earlier policy left gaps between counters', () => {
    const named = (letter: string, count: number) => udp(...Array.from({ length: count }, (_, at) => `${letter}${at}`));
    kernel = loadForTest({ hitCapacity: 80 });
    activate(named('a', 39));
    activate(named('b', 39));
    activate(named('c', 1));
    activate(named('d', 20));
    kernel.runPacket(dns);
    expect(packets()).toMatchObject({ 'clients/d0': 1, 'clients/d19': 0 });
  });

  test('a full table of hit counters of rules refuses a policy that needs more counters or ranks (rules and defaults) than the table has, and keeps the present counters', () => {
    kernel = loadForTest({ hitCapacity: 6, rankCapacity: 8 });
    activate(udp('a', 'b'));
    kernel.runPacket(dns);
    expect(() => kernel.activate(compile(udp('c', 'd', 'e')))).toThrow(new CapacityExceeded('hits', 6, 5));
    expect(() => kernel.activate(compile(udp(...'cdefghij')))).toThrow(new CapacityExceeded('rank_hits', 9, 8));
    expect(packets()).toEqual({ 'clients/a': 1, 'clients/b': 0, '-': 0 });
  });
});
