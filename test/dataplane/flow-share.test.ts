import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { VITALS_BYTES, VITALS_OFFSETS } from '#dataplane/abi/hit.js';
import { FlowTablePressure } from '#dataplane/flows/flow-table-pressure.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { compile } from '#policy/compile/compile.js';
import { allowAll, defaultOnly } from '#test/kernel/policies.js';
import { back, CONVERSATIONS, compileForBoth, echo, onlyFrom, tcp, udp } from './conversation.js';
import { TCP } from './frame.js';
import { kernelOfFile } from './kernel-of-file.js';
import { type Entry, type Loaded, loadForTest, PASSED } from './loaded.js';

const CAPACITY = 1_024;
const SHARE = 0.125;
const LIMIT = CAPACITY * SHARE;
const HALF = CAPACITY / 2;
const FLOOD = 40_000;
const FLOODER = udp.source;
/** The first packet of a connection that the tests establish before the flood. */
const OLDER: Packet<number> = { ...tcp, source: 0x0a03_0001 };
const SHARES = 65_536;

/** Returns `count` different source addresses, beginning with 10.100.0.0. */
const others = (count: number): number[] => Array.from({ length: count }, (_, at) => 0x0a64_0000 + at);

let kernel: Loaded;
let clients: readonly Packet<number>[];
let shares: MappedMemory;
let flowSweep: MappedMemory;
beforeAll(() => {
  kernel = loadForTest({ flowCapacity: CAPACITY, flowShare: SHARE, policeLocal: true });
  shares = new MappedMemory('flow_shares', kernel.object.mapFd('flow_shares'), SHARES * 8);
  flowSweep = new MappedMemory('vitals', kernel.object.mapFd('vitals'), VITALS_BYTES);
  // Two sources with the same counter share one flow limit, and the seed of the hash is random. The test
  // therefore selects clients whose counters differ from each other and from the counters of the flooding
  // sources.
  const taken = new Set([FLOODER, back(udp).source, OLDER.source, ...others(254)].map(counterOf));
  const candidates = Array.from(
    { length: 400 },
    (_, index): Packet<number> => ({ ...tcp, source: 0x0a02_0000 + index }),
  );
  const distinct = candidates.filter(({ source }) => {
    const counter = counterOf(source);
    return !taken.has(counter) && taken.add(counter);
  });
  clients = distinct.slice(0, 100);
});
afterAll(() => {
  shares.unmap();
  flowSweep.unmap();
  kernel.close();
});
beforeEach(() => {
  kernel.forget();
  shares.words.fill(0);
  flowSweep.words[VITALS_OFFSETS.established / 4] = 0;
  kernel.activate(allowAll);
});

/**
 * Returns the index of the counter of `source` in the map `flow_shares`, with the same hash as `hash_of` of
 * the datapath.
 */
function counterOf(source: number): number {
  const mask = (1n << 64n) - 1n;
  const seed = BigInt(flowSweep.words[VITALS_OFFSETS.flow_seed / 4] as number);
  let mixed = ((BigInt(source) ^ ((seed * 0x9e37_79b9_7f4a_7c15n) & mask)) * 0xd6e8_feb8_6659_fd93n) & mask;
  mixed ^= mixed >> 32n;
  mixed = (mixed * 0xd6e8_feb8_6659_fd93n) & mask;
  mixed ^= mixed >> 32n;
  return Number((mixed >> 40n) & BigInt(SHARES - 1));
}
const heldBy = (source: number): number => shares.words[2 * counterOf(source)] as number;
const established = (): number => flowSweep.words[VITALS_OFFSETS.established / 4] as number;
const counted = (): number => shares.words.reduce((sum, count) => sum + count, 0);
const see = (packet: Packet<number>, tcpFlags = 0, icmpId = 0, entry: Entry = 'in'): boolean =>
  kernel.runPacket(packet, { tcpFlags, icmpId }, 0, entry).returned === PASSED;

/** Opens a flow and sends the replies that establish the flow. Returns whether all packets passed. */
function converse(packet: Packet<number>, icmpId = 0): boolean {
  if (packet.protocol === IPPROTO.tcp) {
    return see(packet, TCP.syn) && see(back(packet), TCP.syn | TCP.ack) && see(packet, TCP.ack);
  }
  return see(packet, 0, icmpId) && see(back(packet), 0, icmpId);
}

const port = (number: number): number => 1 + (number % 65_000);
/**
 * Packet sequences of one flooding source, by name. Each call sends the next packets; its argument is the
 * number of the call.
 */
const ATTACKS: Readonly<Record<string, (number: number) => boolean>> = {
  'UDP from many source ports': (n) => converse({ ...udp, sourcePort: port(n) }),
  'UDP to many destination ports': (n) => converse({ ...udp, destinationPort: port(n) }),
  'UDP to many destinations': (n) => converse({ ...udp, destination: udp.destination + n }),
  'UDP to many destinations and ports': (n) =>
    converse({
      ...udp,
      destination: udp.destination + (n % 251),
      sourcePort: port(n * 7),
      destinationPort: port(n * 13),
    }),
  'SYNs without a reply': (n) => see({ ...tcp, sourcePort: port(n) }, TCP.syn),
  'SYNs that get a SYN ACK': (n) => {
    const packet = { ...tcp, sourcePort: port(n) };
    return see(packet, TCP.syn) && see(back(packet), TCP.syn | TCP.ack);
  },
  'TCP with full handshakes': (n) => converse({ ...tcp, sourcePort: port(n) }),
  'TCP with full handshakes to many destinations': (n) => converse({ ...tcp, destination: tcp.destination + n }),
  'echo requests with many identifiers': (n) => converse(echo, n & 0xffff),
  'echo requests to many destinations': (n) => converse({ ...echo, destination: echo.destination + n }, 1),
  'GRE to many destinations': (n) =>
    converse({ ...udp, protocol: 47, sourcePort: 0, destinationPort: 0, destination: udp.destination + n }),
  'SCTP from many source ports': (n) => converse({ ...udp, protocol: IPPROTO.sctp, sourcePort: port(n) }),
  'one hundred protocols in turn': (n) =>
    converse({
      ...udp,
      protocol: 100 + (n % 100),
      sourcePort: 0,
      destinationPort: 0,
      destination: udp.destination + Math.floor(n / 100),
    }),
  'first fragments from many source ports': (n) => {
    const packet = { ...udp, sourcePort: port(n) };
    const first = kernel.runPacket(packet, { fragment: 0x2000, id: n & 0xffff, payloadBytes: 64 });
    return first.returned === PASSED && see(back(packet));
  },
  'UDP from the higher of two addresses': (n) => converse({ ...back(udp), destinationPort: port(n) }),
};

describe('the flow limit of a source that floods the flow table', () => {
  test.each(Object.entries(ATTACKS))(
    'the flow limit of a flooding source keeps its older connections open and lets other sources open connections (flood: %s)',
    (_, attack) => {
      const own = { ...tcp, sourcePort: 65_500, destinationPort: 8443 };
      expect([converse(own), converse(OLDER)]).toEqual([true, true]);
      const refused: Packet<number>[] = [];
      for (let number = 0; number < FLOOD; number++) {
        attack(number);
        if (number % (FLOOD / clients.length) !== 0) continue;
        const client = clients[number / (FLOOD / clients.length)] as Packet<number>;
        if (!converse(client)) refused.push(client);
      }
      expect(refused).toEqual([]);
      expect(clients.filter((client) => !see(client, TCP.ack))).toEqual([]);
      expect([see(own, TCP.ack), see(back(own), TCP.ack), see(OLDER, TCP.ack)]).toEqual([true, true, true]);
      expect(kernel.counted().drop_flow_table_full).toBeUndefined();
      expect(counted()).toBe(established());
      expect(kernel.flowsIn('flows')).toHaveLength(established());
      // The flood gets half of the table and one more flow. The clients and the two older connections add
      // their flows.
      expect(established()).toBeLessThanOrEqual(HALF + clients.length + 3);
    },
  );

  test('the flow limit of a flooding source also applies to late replies, which establish flows only up to half of the flow table', () => {
    for (const client of clients) converse(client);
    const flood = Array.from({ length: 1_500 }, (_, number) => ({ ...udp, sourcePort: port(number) }));
    for (const packet of flood) see(packet);
    const there = flood.filter((packet) => see(back(packet)));
    expect(there.length).toBeGreaterThan(LIMIT);
    expect(established()).toBe(HALF + 1);
    const more = clients.map((client) => ({ ...client, sourcePort: 50_000 }));
    expect(more.filter((client) => !converse(client))).toEqual([]);
  });

  /**
   * Opens `each` flows per source. With `inTurns` the sources open their flows in turns; otherwise one source
   * opens all its flows before the next source.
   */
  const flood = (sources: readonly number[], each: number, inTurns: boolean): void => {
    for (let number = 0; number < each * sources.length; number++) {
      const at = inTurns ? number % sources.length : Math.floor(number / each);
      const next = inTurns ? Math.floor(number / sources.length) : number % each;
      converse({ ...udp, source: sources[at] as number, sourcePort: port(next) });
    }
  };
  test.each([
    [2, true],
    [4, false],
    [10, false],
    [10, true],
    [100, false],
    [100, true],
    [254, true],
  ])('other sources can open connections after %i sources flooded the flow table (in turns: %s)', (count, inTurns) => {
    expect(converse(OLDER)).toBe(true);
    flood(others(count), Math.max(40, Math.ceil((2 * CAPACITY) / count)), inTurns);
    // The flow limit never refuses the first flow of a source, so the flows can exceed the capacity by one
    // per source.
    expect(established()).toBeLessThanOrEqual(CAPACITY + count);
    expect(clients.filter((client) => !converse(client))).toEqual([]);
    expect(clients.filter((client) => !see(client, TCP.ack))).toEqual([]);
    expect([see(OLDER, TCP.ack), see(back(OLDER), TCP.ack)]).toEqual([true, true]);
    expect(kernel.counted().drop_flow_table_full).toBeUndefined();
    expect(counted()).toBe(established());
  });

  test('the flow limit of a source shrinks as the flow table fills up, beginning when the table is half full', () => {
    flood(others(5), 2_000, false);
    const held = others(5).map(heldBy);
    // The first source gets half of the table and one more flow. Each later source is refused when its flows
    // reach a quarter of the capacity that is still free.
    const expected = [HALF + 1];
    for (let sum = HALF + 1; expected.length < 5; sum += expected.at(-1) as number) {
      let own = 0;
      while (own < Math.max(1, Math.floor((CAPACITY - sum - own) * 2 * SHARE))) own++;
      expected.push(own);
    }
    expect(held).toEqual(expected);
  });

  test('a flow beyond the limit of its source is refused with flow_share, and the source can open flows after some of its flows have ended', () => {
    for (let number = 0; number < 2 * HALF; number++) converse({ ...udp, sourcePort: port(number) });
    const { drop_flow_share: drops } = kernel.counted();
    expect(drops).toBe(HALF - 1);
    const next = { ...udp, sourcePort: 64_999 };
    expect(converse(next)).toBe(false);
    kernel.activate(compile(onlyFrom(clients[0]?.source ?? 0)));
    for (let number = 0; number <= HALF; number++) see({ ...udp, sourcePort: port(number) });
    kernel.activate(allowAll);
    expect(converse(next)).toBe(true);
  });

  test('`FlowTablePressure` (does the flow table refuse new flows?) returns flow_share for ten seconds after the flow limit of a source refused a flow', () => {
    for (let number = 0; number <= HALF; number++) converse({ ...udp, sourcePort: port(number) });
    const refusals = new FlowTablePressure(kernel.object.mapFd('counters'));
    expect(refusals.now(0)).toEqual([]);
    converse({ ...udp, sourcePort: 64_999 });
    expect([refusals.now(1_000), refusals.now(10_999), refusals.now(11_000)]).toEqual([
      ['flow_share'],
      ['flow_share'],
      [],
    ]);
  });

  test('the flow limit of a source refuses no flow while the flow table is at most half full', () => {
    for (let number = 0; number < HALF; number++) expect(converse({ ...udp, sourcePort: port(number) })).toBe(true);
    expect(established()).toBe(HALF);
  });
});

describe('flows that the egress hook opens, for the node or for an unpoliced interface', () => {
  test.each([['out_of_node' as const], ['out_foreign' as const]])(
    'flows that the egress hook opens (BPF entry: %s) count towards the flow limit of the source that opened the flows',
    (entry) => {
      for (let number = 0; number < 2_000; number++) {
        const packet = { ...udp, sourcePort: port(number) };
        see(packet, 0, 0, entry);
        see(back(packet));
      }
      expect(established()).toBe(HALF + 1);
      expect(clients.filter((client) => !converse(client))).toEqual([]);
    },
  );

  test('flows from an unpoliced interface fill at most three quarters of the flow table, even if each flow has another source', () => {
    for (let number = 0; number < 4_000; number++) {
      const packet = { ...udp, source: 0x0a65_0000 + number, sourcePort: port(number) };
      see(packet, 0, 0, 'out_foreign');
      see(back(packet));
    }
    expect(established()).toBeLessThanOrEqual(HALF + HALF / 2);
    expect(clients.filter((client) => !converse(client))).toEqual([]);
    expect(kernel.counted().drop_flow_table_full).toBeUndefined();
  });

  test('flows from an unpoliced interface with the source address of a client do not count towards the flow limit of that client', () => {
    const [victim] = clients as [Packet<number>];
    for (let number = 0; number < 2_000; number++) {
      const packet = { ...udp, source: victim.source, sourcePort: port(number) };
      see(packet, 0, 0, 'out_foreign');
      see(back(packet));
    }
    const own = Array.from({ length: LIMIT / 2 }, (_, number) => ({ ...victim, sourcePort: 2_000 + number }));
    expect(own.filter((packet) => !converse(packet))).toEqual([]);
  });
});

describe('counters of established flows', () => {
  const end: Readonly<Record<string, (packets: readonly Packet<number>[]) => void>> = {
    'a policy that denies the flows': (packets) => {
      kernel.activate(compile(onlyFrom(0x0a09_0909)));
      for (const packet of packets) see(packet, TCP.ack);
    },
    'a RST and then a SYN of each flow': (packets) => {
      for (const packet of packets) {
        see(packet, TCP.rst);
        see(packet, TCP.syn);
      }
    },
  };
  test.each(Object.entries(end))(
    'the counters of established flows, per source and in total, return to zero after the end of the flows by %s',
    (_, ending) => {
      const packets = Array.from({ length: 400 }, (_, number) => ({
        ...tcp,
        source: (number & 1) === 0 ? FLOODER + number : 0xc0a8_0000 + number,
        sourcePort: 1 + number,
      }));
      expect(packets.filter((packet) => !converse(packet))).toEqual([]);
      expect([counted(), established()]).toEqual([400, 400]);
      ending(packets);
      expect([counted(), established()]).toEqual([0, 0]);
      expect(shares.words.every((count) => count === 0)).toBe(true);
      const { flows_opened: opened, flows_closed: closed } = kernel.counted();
      expect([opened, closed]).toEqual([400, 400]);
    },
  );
});

describe('the flow limit of a source of IPv6', () => {
  const options = { family: 'ipv6', flowCapacity: CAPACITY, flowShare: SHARE } as const;
  const ipv6 = kernelOfFile(compileForBoth(defaultOnly('allow')), options);
  const first = CONVERSATIONS.ipv6.udp;
  const opens = (source: bigint): boolean => {
    const packet = { ...first, source };
    return [packet, back(packet)].every((one) => ipv6.runPacket(one).returned === PASSED);
  };

  test('the flow limit of a source of IPv6 applies to all addresses of its /64 prefix together', () => {
    const ofPrefix = (number: number): bigint => first.source + BigInt(number) * 0x1_0000_0001n;
    const opened = Array.from({ length: CAPACITY }, (_, number) => opens(ofPrefix(number))).filter(Boolean);
    expect(opened).toHaveLength(HALF + 1);
    expect(ipv6.counted()).toMatchObject({ flows_opened: HALF + 1, drop_flow_share: HALF - 1 });
  });

  test('256 consecutive /64 prefixes have counters of their own', () => {
    const map = new MappedMemory('flow_shares', ipv6.ipv6?.object.mapFd('flow_shares') ?? -1, SHARES * 8);
    const counters = (): number => map.words.filter((count) => count !== 0).length;
    map.words.fill(0);
    for (let subnet = 0; subnet < 256; subnet++) opens(first.source + (BigInt(subnet) << 64n));
    // Two of them may have one counter by chance, because there are 65,536 counters.
    expect(counters()).toBeGreaterThan(250);
    map.unmap();
  });
});
