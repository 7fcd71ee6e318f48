import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { DEFAULT_TIMEOUTS_MS } from '#contracts/datapath/datapath-options.js';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { VITALS_BYTES, VITALS_OFFSETS } from '#dataplane/abi/hit.js';
import { EventBatch, RECORD_BYTES } from '#dataplane/events/batch.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { EventRing } from '#dataplane/watch/event-ring.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { compile } from '#policy/compile/compile.js';
import { allowAll, denyAll } from '#test/kernel/policies.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { Random } from '#test/seed.js';
import { back, CLIENT, echo, gre, icmp, onlyFrom, SERVER, STRANGER, tcp, udp } from './conversation.js';
import { icmpContent, quoteOf, TCP } from './frame.js';
import { DROPPED, type Entry, type Loaded, loadForTest, PASSED } from './loaded.js';

let kernel: Loaded;
let vitals: MappedMemory;
beforeAll(() => {
  kernel = loadForTest({ flowCapacity: 4, policeLocal: true, denyEvents: 1_000, flowEvents: 1_000 });
  vitals = new MappedMemory('vitals', kernel.object.mapFd('vitals'), VITALS_BYTES);
});
afterAll(() => {
  vitals.unmap();
  kernel.close();
});
beforeEach(() => {
  kernel.narrow(0);
  kernel.forget();
  vitals.words[VITALS_OFFSETS.established / 4] = 0;
  kernel.activate(allowAll);
});

const see = (packet: Packet<number>, tcpFlags = 0, entry: Entry = 'in'): number =>
  kernel.runPacket(packet, { tcpFlags, icmpId: 1 }, 0, entry).returned;
const established = (): number => vitals.words[VITALS_OFFSETS.established / 4] as number;
const isTcp = ({ protocol }: Packet<number>): boolean => protocol === IPPROTO.tcp;

/** Opens a flow, and sends the packets that establish the flow. */
function converse(packet: Packet<number>): void {
  const flags = isTcp(packet) ? [TCP.syn, TCP.syn | TCP.ack, TCP.ack] : [0, 0];
  const packets = flags.map((tcpFlags, index) => [index % 2 === 0 ? packet : back(packet), tcpFlags] as const);
  for (const [sent, tcpFlags] of packets) expect(see(sent, tcpFlags)).toBe(PASSED);
}
const goesOn = (packet: Packet<number>): number[] => [see(packet, TCP.ack), see(back(packet), TCP.ack)];

const listed = async () => {
  const page = await kernel.trafficStatistics.flows({ filter: anyFlow(), after: null, limit: 10 }, DEFAULT_TIMEOUTS_MS);
  return page.items;
};

describe('a policy that denies an established flow, and a later policy that allows it', () => {
  test.each([
    ['TCP', tcp, 'tcp_established'],
    ['UDP', udp, 'udp_replied'],
    ['ICMP echo', echo, 'icmp_replied'],
    ['a protocol without ports', gre, 'other_replied'],
  ] as const)(
    'a flow over %s that a later policy denies is suspended: no packet passes in either direction, and the flow continues under a policy that allows it',
    (_, packet, state) => {
      converse(packet);
      const before = kernel.flowIn('flows');
      kernel.activate(denyAll);
      expect([...goesOn(packet), ...goesOn(packet)]).toEqual([DROPPED, DROPPED, DROPPED, DROPPED]);
      const { packets, bytes, lastSeen } = before ?? {};
      expect(kernel.flowIn('half_open')).toMatchObject({ state, suspended: true, packets, bytes, lastSeen });
      expect([kernel.flowsIn('flows'), established()]).toEqual([[], 0]);
      kernel.activate(allowAll);
      expect(goesOn(packet)).toEqual([PASSED, PASSED]);
      expect(kernel.flowsIn('half_open')).toEqual([]);
      expect(kernel.flowIn('flows')).toMatchObject({ state, suspended: false });
      expect(established()).toBe(1);
      expect(kernel.counted()).toMatchObject({
        ...{ flows_suspended: 1, flows_resumed: 1, flows_closed: 1, flows_opened: 2 },
        drop_policy_deny: 4,
      });
    },
  );

  test('the reply of a suspended flow is the first packet that resumes it', () => {
    converse(tcp);
    kernel.activate(denyAll);
    expect(see(back(tcp), TCP.ack)).toBe(DROPPED);
    kernel.activate(allowAll);
    expect([see(back(tcp), TCP.ack), see(tcp, TCP.ack)]).toEqual([PASSED, PASSED]);
  });

  test('a suspended flow stays suspended under further policies that deny it', () => {
    converse(tcp);
    for (let times = 0; times < 5; times++) {
      kernel.activate(denyAll);
      expect(goesOn(tcp)).toEqual([DROPPED, DROPPED]);
    }
    kernel.activate(allowAll);
    expect(goesOn(tcp)).toEqual([PASSED, PASSED]);
    expect(kernel.counted()).toMatchObject({ flows_suspended: 1, flows_resumed: 1 });
  });

  test('an established flow that sends no packet while a policy denies it is not suspended', () => {
    converse(tcp);
    kernel.activate(denyAll);
    kernel.activate(allowAll);
    expect(goesOn(tcp)).toEqual([PASSED, PASSED]);
    expect(kernel.counted()).not.toHaveProperty('flows_suspended');
  });

  test('a flow that was not established when a policy denies it ends', () => {
    expect(see(tcp, TCP.syn)).toBe(PASSED);
    kernel.activate(denyAll);
    expect(see(tcp, TCP.syn)).toBe(DROPPED);
    expect(kernel.flowsIn('half_open')).toEqual([]);
    kernel.activate(allowAll);
    expect(see(back(tcp), TCP.syn | TCP.ack)).toBe(DROPPED);
    expect(see(tcp, TCP.syn)).toBe(PASSED);
  });

  test('a flow is suspended if a policy redirects it to a service plane that does not run, and continues under the earlier policy', () => {
    converse(tcp);
    const tls = rule({ to: ['0.0.0.0/0'], protocol: IPPROTO.tcp, ports: ['443'], tls: { mode: 'metadata' } });
    kernel.activate(compile(policy([group(['0.0.0.0/0'], [tls])])));
    expect(goesOn(tcp)).toEqual([DROPPED, DROPPED]);
    expect(kernel.counted()).toMatchObject({ drop_service_plane_absent: 2, flows_suspended: 1 });
    kernel.activate(allowAll);
    expect(goesOn(tcp)).toEqual([PASSED, PASSED]);
  });
});

describe('packets beside a suspended flow', () => {
  test('none of 10,000 random packets between the hosts of suspended flows passes, and the flows continue afterwards', () => {
    const random = new Random(4_711);
    const suspended = [tcp, udp, echo, gre];
    for (const packet of suspended) converse(packet);
    kernel.activate(denyAll);
    for (const packet of suspended) goesOn(packet);
    const ends = [CLIENT, SERVER, STRANGER];
    const ports = [40_000, 443, 53, 40_001];
    const flags = [TCP.syn, TCP.ack, TCP.rst, TCP.fin | TCP.ack, TCP.syn | TCP.ack];
    const verdicts = Array.from({ length: 10_000 }, () => {
      const [source, destination] = [random.pick(ends), random.pick(ends)];
      const [sourcePort, destinationPort] = [random.pick(ports), random.pick(ports)];
      const packet = { ...random.pick(suspended), source, destination, sourcePort, destinationPort };
      return see(packet, random.pick(flags), random.pick(['in', 'in', 'out_of_node']));
    });
    expect(new Set(verdicts)).toEqual(new Set([DROPPED]));
    kernel.activate(allowAll);
    for (const packet of suspended) expect(goesOn(packet)).toEqual([PASSED, PASSED]);
  });

  test('an ICMP error about a suspended flow is dropped', () => {
    converse(tcp);
    const error = (): number =>
      kernel.runPacket(icmp(STRANGER, CLIENT, 3, 4), { content: icmpContent(3, 4, quoteOf(tcp)) }).returned;
    expect(error()).toBe(PASSED);
    kernel.activate(denyAll);
    expect([see(tcp, TCP.ack), error()]).toEqual([DROPPED, DROPPED]);
    kernel.activate(allowAll);
    expect(error()).toBe(PASSED);
  });

  test('a reply from an interface without policy opens no foreign flow beside a suspended flow, and does not extend its time-out', () => {
    converse(tcp);
    kernel.activate(denyAll);
    expect(see(tcp, TCP.ack)).toBe(DROPPED);
    const before = kernel.records();
    expect(see(back(tcp), TCP.ack, 'out_foreign')).toBe(PASSED);
    expect(kernel.records()).toEqual(before);
    expect(see(tcp, TCP.ack)).toBe(DROPPED);
  });

  test('a SYN from the replying side of a suspended flow is classified as a new connection', () => {
    converse(tcp);
    kernel.activate(compile(onlyFrom(SERVER)));
    expect([see(tcp, TCP.ack), see(back(tcp), TCP.ack)]).toEqual([DROPPED, DROPPED]);
    expect(see(back(tcp), TCP.syn)).toBe(PASSED);
    expect(see(tcp, TCP.ack)).toBe(DROPPED);
  });
});

describe('the place of a suspended flow', () => {
  const flows = (count: number): Packet<number>[] =>
    Array.from({ length: count }, (_, index) => ({ ...tcp, sourcePort: 50_000 + index }));

  test('a new flow in a full flow table evicts a suspended flow before any half-open flow', () => {
    const [suspended, ...others] = flows(8) as [Packet<number>, ...Packet<number>[]];
    const halfOpen = others.map((packet) => ({ ...packet, protocol: IPPROTO.udp }));
    for (const packet of halfOpen) expect(see(packet)).toBe(PASSED);
    converse(suspended);
    kernel.activate(denyAll);
    expect(see(suspended, TCP.ack)).toBe(DROPPED);
    kernel.activate(allowAll);
    expect(kernel.flowsIn('half_open')).toHaveLength(8);
    expect(see({ ...udp, sourcePort: 60_000 })).toBe(PASSED);
    const left = kernel.flowsIn('half_open').map(({ sourcePort }) => sourcePort);
    expect(left.sort()).toEqual([...halfOpen.map(({ sourcePort }) => sourcePort), 60_000].sort());
    expect(see(suspended, TCP.ack)).toBe(DROPPED);
  });

  test('a new flow in a flow table full of established flows evicts the only suspended flow', () => {
    const [suspended, ...others] = flows(8) as [Packet<number>, ...Packet<number>[]];
    for (const packet of [suspended, ...others]) converse(packet);
    expect(see(udp)).toBe(DROPPED);
    const both = compile(onlyFrom(STRANGER));
    kernel.activate(both);
    expect(see(suspended, TCP.ack)).toBe(DROPPED);
    kernel.activate(allowAll);
    expect(see(udp)).toBe(PASSED);
    for (const packet of others) expect(goesOn(packet)).toEqual([PASSED, PASSED]);
  });

  test('an operator can end (cut) a suspended flow', async () => {
    converse(tcp);
    kernel.activate(denyAll);
    expect(see(tcp, TCP.ack)).toBe(DROPPED);
    const suspended = { filter: anyFlow({ suspended: true }), after: null, limit: 10 };
    expect(await kernel.trafficStatistics.cutFlows(suspended)).toMatchObject({ cut: 1 });
    kernel.activate(allowAll);
    expect(see(tcp, TCP.ack)).toBe(DROPPED);
    expect(kernel.flowsIn('half_open')).toEqual([]);
  });
});

describe('the report of a suspended flow', () => {
  test('a suspended flow is listed as suspended, with the rule that denies it', async () => {
    converse(tcp);
    const no = rule({ id: 'no', action: 'deny' });
    kernel.activate(compile(policy([group(['0.0.0.0/0'], [no])])), 2);
    see(tcp, TCP.ack);
    const decider = { kind: 'rule', group: 'group', rule: 'no' };
    expect(await listed()).toMatchObject([
      { suspended: true, verdict: 'deny', state: 'tcp_established', decider, generation: 2 },
    ]);
    kernel.activate(allowAll, 3);
    see(tcp, TCP.ack);
    expect(await listed()).toMatchObject([
      { suspended: false, verdict: 'allow', decider: { kind: 'policy_default' }, generation: 3 },
    ]);
  });

  /** Returns type, verdict and reason of the events about TCP flows that `run` causes. */
  async function toldDuring(run: () => Promise<void> | void): Promise<readonly unknown[]> {
    const ring = new EventRing(kernel.object.mapFd('events'), kernel.object.describe('events').maxEntries);
    try {
      kernel.wantEvents(true);
      await run();
      const records = ring.take(1_000);
      const count = records.length / RECORD_BYTES;
      const batch = new EventBatch({ records: records.buffer, count, lost: 0, monotonicNs: 0, unixMs: 0 });
      return [...batch].flatMap((seen) =>
        'endReason' in seen && seen.protocol === IPPROTO.tcp ? [[seen.type, seen.verdict, seen.endReason]] : [],
      );
    } finally {
      ring.unmap();
      kernel.wantEvents(false);
    }
  }

  test('the datapath sends an event when a flow is suspended, resumed, suspended again, and when it ends while it is suspended', async () => {
    const told = await toldDuring(() => {
      converse(tcp);
      for (const program of [denyAll, allowAll, denyAll]) {
        kernel.activate(program);
        see(tcp, TCP.ack);
      }
      kernel.activate(allowAll);
      for (const sourcePort of [1, 2, 3, 4, 5, 6, 7, 8]) see({ ...udp, sourcePort });
    });
    expect(told).toEqual([
      ['flow_opened', 'allow', null],
      ['flow_suspended', 'deny', 'policy_deny'],
      ['flow_resumed', 'allow', null],
      ['flow_suspended', 'deny', 'policy_deny'],
      ['flow_ended', 'deny', 'policy_deny'],
    ]);
  });

  test('the event of a suspended flow that an operator ends has the reason `cut`', async () => {
    const told = await toldDuring(async () => {
      converse(tcp);
      kernel.activate(denyAll);
      see(tcp, TCP.ack);
      await kernel.trafficStatistics.cutFlows({ filter: anyFlow({ suspended: true }), after: null, limit: 10 });
    });
    expect(told.at(-1)).toEqual(['flow_ended', 'deny', 'cut']);
  });
});
