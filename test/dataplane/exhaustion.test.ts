import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { DEFAULT_TIMEOUTS_MS } from '#contracts/datapath/datapath-options.js';
import { allowAll } from '#test/kernel/policies.js';
import { back, echo, gre, onlyClient, STRANGER, tcp, udp } from './conversation.js';
import { TCP } from './frame.js';
import { type Loaded, loadForTest, PASSED } from './loaded.js';

const FLOWS = 512;
/** Number of places for flows in a flow table with a capacity of 512 flows: twice the capacity. */
const LINES = 1_024;
let kernel: Loaded;
beforeAll(() => {
  kernel = loadForTest({ flowCapacity: FLOWS });
});
afterAll(() => kernel.close());
beforeEach(() => {
  kernel.forget();
  kernel.activate(onlyClient);
});

const see = (packet: typeof tcp, tcpFlags = 0): boolean => kernel.runPacket(packet, { tcpFlags }).returned === PASSED;
const establish = (port: number): boolean[] => {
  const packet = { ...tcp, sourcePort: port };
  return [see(packet, TCP.syn), see(back(packet), TCP.syn | TCP.ack), see(packet, TCP.ack)];
};
const ports = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1);

describe('a flood of half-open flows', () => {
  test.each([
    ['SYNs', tcp, TCP.syn],
    ['UDP', udp, 0],
    ['GRE and other protocols without ports', gre, 0],
  ])(
    'a flood of half-open flows (packets: %s) evicts only half-open flows, and every established flow continues',
    (_, packet, flags) => {
      for (const port of ports(200)) establish(port);
      for (let number = 0; number < 40_000; number++) {
        see({ ...packet, sourcePort: number & 0xffff, destination: packet.destination + (number >> 8) }, flags);
      }
      expect(kernel.flowsIn('half_open')).toHaveLength(packet === gre ? 157 : LINES - 200);
      expect(ports(200).filter((port) => !see({ ...tcp, sourcePort: port }, TCP.ack))).toEqual([]);
      expect(ports(200).filter((port) => !see(back({ ...tcp, sourcePort: port }), TCP.ack))).toEqual([]);
      expect(kernel.counted()).toMatchObject({ flows_opened: 200 });
      expect(establish(999)).toEqual([true, true, true]);
    },
  );

  test('a flood of half-open flows leaves room for as many established flows as the capacity of the flow table', () => {
    const capacity = 4_096;
    const large = loadForTest({ flowCapacity: capacity });
    try {
      large.activate(allowAll);
      const passes = (packet: typeof tcp, tcpFlags: number): boolean =>
        large.runPacket(packet, { tcpFlags }).returned === PASSED;
      for (let number = 0; number < 6 * capacity; number++) passes({ ...tcp, source: tcp.source + number }, TCP.syn);
      const others = Array.from({ length: capacity }, (_, at) => ({ ...tcp, source: 0x0a64_0000 + at }));
      const open = others.filter(
        (packet) => passes(packet, TCP.syn) && passes(back(packet), TCP.syn | TCP.ack) && passes(packet, TCP.ack),
      );
      expect(open).toHaveLength(capacity);
      expect(large.counted().drop_flow_table_full).toBeUndefined();
    } finally {
      large.close();
    }
  });

  test('a flood of half-open flows does not let a packet pass that the policy denies', () => {
    for (let number = 0; number < 5_000; number++) see({ ...tcp, sourcePort: number }, TCP.syn);
    const denied = { ...tcp, source: STRANGER };
    for (const flags of [TCP.syn, TCP.ack, TCP.syn | TCP.ack]) expect(see(denied, flags)).toBe(false);
    // The flood evicted the flow of source port 1. A SYN ACK without a flow is dropped as out of state; a SYN
    // is classified and opens a flow.
    expect(see(back({ ...tcp, sourcePort: 1 }), TCP.syn | TCP.ack)).toBe(false);
    expect(see({ ...tcp, sourcePort: 1 }, TCP.syn)).toBe(true);
  });
});

describe('a full flow table', () => {
  test('a full flow table refuses and counts new flows beyond its capacity, and keeps all established flows', () => {
    for (const port of ports(FLOWS)) expect(establish(port)).toEqual([true, true, true]);
    const more = ports(2 * FLOWS).map((port) => 10_000 + port);
    const refused = more.filter((port) => establish(port)[0] === false);
    expect(refused.length).toBeGreaterThanOrEqual(FLOWS);
    const held = 3 * FLOWS - refused.length;
    expect(kernel.counted()).toMatchObject({ flows_opened: held, drop_flow_table_full: refused.length });
    const there = [...ports(FLOWS), ...more.filter((port) => !refused.includes(port))];
    expect(there.filter((port) => !see({ ...tcp, sourcePort: port }, TCP.ack))).toEqual([]);
    expect(kernel.flowsIn('flows')).toHaveLength(held);
  });

  test('a full flow table accepts a refused flow later by evicting a connection that was reset and is half open again after a SYN', () => {
    const lasting = kernel;
    kernel = loadForTest({ flowCapacity: 4 });
    try {
      kernel.activate(onlyClient);
      for (const port of ports(8)) expect(establish(port)).toEqual([true, true, true]);
      expect(establish(20_000)).toEqual([false, false, false]);
      see({ ...tcp, sourcePort: 1 }, TCP.rst);
      see({ ...tcp, sourcePort: 1 }, TCP.syn);
      // The connection of port 1 was opened again and has no reply yet. The datapath evicts the half-open
      // flow of this connection, to make room for the new flow.
      expect(establish(20_000)).toEqual([true, true, true]);
    } finally {
      kernel.close();
      kernel = lasting;
    }
  });
});

const SHORT_MS = 200;
const other = { ...udp, protocol: 99 };
const answered = (packet: typeof udp) => [see(packet), see(back(packet))];
/** Sends a FIN, and the acknowledgment of its receiver. */
const end = (packet: typeof tcp): void => {
  kernel.runPacket(packet, { tcpFlags: TCP.fin | TCP.ack, payloadBytes: 0 });
  kernel.runPacket(back(packet), { tcpFlags: TCP.ack, acknowledgment: 1, payloadBytes: 0 });
};
/**
 * For each flow state, a function that sends the packets which lead to the state. The states of one array
 * element are tested together, in one load of the datapath.
 */
const STAGES = [
  {
    tcp_syn_received: () => [see(tcp, TCP.syn), see(back(tcp), TCP.syn | TCP.ack)],
    udp_opened: () => see(udp),
    icmp_opened: () => see(echo),
    other_opened: () => see(other),
  },
  {
    tcp_closing: () => [establish(1), end({ ...tcp, sourcePort: 1 }), end(back({ ...tcp, sourcePort: 1 }))],
    tcp_reset: () => [establish(2), see({ ...tcp, sourcePort: 2 }, TCP.rst)],
    udp_replied: () => answered(udp),
    icmp_replied: () => answered(echo),
    other_replied: () => answered(other),
  },
  {
    tcp_established: () => establish(1),
    tcp_half_closed: () => [establish(2), end({ ...tcp, sourcePort: 2 })],
  },
  { tcp_syn_sent: () => see(tcp, TCP.syn) },
] as const;

describe('time-outs of flow states', () => {
  test.each(STAGES.map((stages) => [Object.keys(stages).join(', '), stages] as const))(
    'the datapath ends flows without new packets after the time-out of their state (states: %s)',
    async (_, stages) => {
      const short = Object.fromEntries(Object.keys(stages).map((state) => [state, SHORT_MS]));
      const lasting = kernel;
      kernel = loadForTest({ timeoutsMs: { ...DEFAULT_TIMEOUTS_MS, ...short } });
      try {
        kernel.activate(onlyClient);
        for (const reach of Object.values(stages)) reach();
        expect(kernel.counted().half_opened).toBe(Object.keys(stages).length);
        await expect.poll(states, { interval: 20 }).toEqual([]);
        expect([see(back(udp)), see(back(tcp), TCP.syn | TCP.ack), see(back(echo))]).toEqual([false, false, false]);
        kernel.close();
        kernel = lasting;
        for (const reach of Object.values(stages)) reach();
        expect(states().sort()).toEqual(Object.keys(stages).sort());
      } finally {
        if (kernel !== lasting) kernel.close();
        kernel = lasting;
      }
    },
  );
});

function states(): string[] {
  return [...kernel.flowsIn('flows'), ...kernel.flowsIn('half_open')].map(({ state }) => state);
}
