import { expect, test } from 'vitest';
import { type Address, IPPROTO } from '#contracts/policy/policy-model.js';
import { EventBatch, RECORD_BYTES, RECORD_HEADER_BYTES } from '#dataplane/events/batch.js';
import { EVENT_FLAG, EVENT_OFFSETS } from '#dataplane/events/event.js';
import { Surroundings } from '#dataplane/events/surroundings.js';
import { AddressNames } from '#observe/names/address-names.js';
import { AddressOwners } from '#observe/names/address-owners.js';
import { RuleNameResolver } from '#observe/names/rule-name-resolver.js';
import { MessageFold } from '#observe/wiretap/message-fold.js';
import { MessageCache } from '#observe/wiretap/messages/message-cache.js';
import { MessageWriter } from '#observe/wiretap/messages/message-writer.js';
import { type Seen, sizeOf } from '#observe/wiretap/seen-batch.js';
import { address } from '#test/policy/sample.js';
import { Random } from '#test/seed.js';
import { request, seenConnection } from './connections.js';
import { type EventInput, packedOf } from './events.js';

type Message = Record<string, unknown>;
type BothWays = { forward: number; reply: number };

const UNIX_MS = Date.UTC(2026, 0, 31);

function writer(): MessageWriter {
  const surroundings = new Surroundings();
  surroundings.learn({ kind: 'interfaces', names: new Map([[0, 'lan0']]) });
  const ruleNameResolver = new RuleNameResolver(surroundings.ruleNameHistory);
  return new MessageWriter({ ruleNameResolver, names: new AddressNames(), owners: new AddressOwners(), surroundings });
}

/** Returns a batch of events `afterMs` after `UNIX_MS`. `counts` gives packets and bytes by the index. */
function events(inputs: readonly EventInput[], counts: (index: number) => number, afterMs = 0): Seen {
  const timed = inputs.map((input) => ({ ...input, timeNs: BigInt(afterMs) * 1_000_000n }));
  const packed = packedOf(timed, { unixMs: UNIX_MS });
  const view = new DataView(packed.records);
  for (const [index, { wire }] of inputs.entries()) {
    const at = index * RECORD_BYTES + RECORD_HEADER_BYTES;
    view.setUint32(at + EVENT_OFFSETS.length, 60 + index, true);
    view.setBigUint64(at + EVENT_OFFSETS.packets, BigInt(counts(index)), true);
    if (wire !== undefined) continue;
    view.setBigUint64(at + EVENT_OFFSETS.packets + 8, BigInt(2 * counts(index)), true);
    view.setBigUint64(at + EVENT_OFFSETS.bytes, BigInt(100 * counts(index)), true);
    view.setBigUint64(at + EVENT_OFFSETS.bytes + 8, BigInt(200 * counts(index)), true);
  }
  return { kind: 'events', batch: new EventBatch(packed) };
}

const textOf = (bytes: Uint8Array): Message[] => [JSON.parse(new TextDecoder().decode(bytes)) as Message].flat();

function folded(batches: readonly Seen[], most = 512) {
  const fold = new MessageFold(writer());
  for (const seen of batches) for (let index = 0; index < sizeOf(seen); index++) fold.add(seen, index);
  const frames = fold.drain(most);
  expect([fold.size, fold.drain(most)]).toEqual([0, []]);
  for (const { bytes, rows } of frames) expect(textOf(bytes)).toHaveLength(rows);
  return { rows: frames.flatMap(({ bytes }) => textOf(bytes)), frames };
}

const VARIABLE = ['time', 'src_port', 'icmp_id', 'tcp_flags', 'length', 'packets', 'bytes', 'opened', 'count'];

/** Folds messages in the way of the documentation, from the messages that are sent without `fold`. */
function oracle(batches: readonly Seen[]): Message[] {
  const cache = new MessageCache(writer());
  const messages = batches.flatMap((seen) => {
    const all = Array.from({ length: sizeOf(seen) }, (_, index) => index);
    return all.length === 0 ? [] : textOf(cache.of(seen).frame(all));
  });
  const rows = new Map<string, Message>();
  for (const message of messages) {
    const key = JSON.stringify(Object.entries(message).filter(([name]) => !VARIABLE.includes(name)));
    const known = rows.get(key);
    const count = typeof message.count === 'number' ? message.count : 1;
    rows.set(key, {
      ...message,
      ...(known === undefined ? {} : summed(known, message)),
      count: count + Number(known?.count ?? 0),
      first_seen: known?.first_seen ?? message.time,
    });
  }
  return [...rows.values()];
}

/** Returns the sums of packets and bytes of both messages. */
function summed(one: Message, other: Message): Message {
  const sum = (name: string): unknown => {
    const [a, b] = [one[name], other[name]];
    if (typeof a === 'number') return a + Number(b);
    const [c, d] = [a as BothWays, b as BothWays];
    return { forward: c.forward + d.forward, reply: c.reply + d.reply };
  };
  return Object.fromEntries(['packets', 'bytes'].filter((name) => name in one).map((name) => [name, sum(name)]));
}

const flow = (more: Partial<EventInput> = {}): EventInput => ({
  type: 'flow_ended',
  source: address('10.0.0.7'),
  destination: address('192.0.2.1'),
  sourcePort: 40_000,
  destinationPort: 443,
  state: 1,
  ...more,
});

test('a wiretap fold combines flows that differ only in time, source port and sizes into one message with count, first time, sums and the latest port', () => {
  const first = events([flow({ sourcePort: 1 }), flow({ destinationPort: 80 })], () => 3);
  const second = events([flow({ sourcePort: 2 })], () => 0xffff_ffff, 1_500);
  const { rows, frames } = folded([first, second]);
  const sum = 0xffff_ffff + 3;
  expect(rows).toMatchObject([
    {
      type: 'flow_end',
      time: '2026-01-31T00:00:01.500Z',
      src_port: 2,
      dst_port: 443,
      packets: { forward: sum, reply: 2 * sum },
      bytes: { forward: 100 * sum, reply: 200 * sum },
      count: 2,
      first_seen: '2026-01-31T00:00:00.000Z',
    },
    { dst_port: 80, packets: { forward: 3, reply: 6 }, count: 1, first_seen: '2026-01-31T00:00:00.000Z' },
  ]);
  expect(frames.map(({ rows: own, messages }) => [own, messages])).toEqual([[2, 3]]);
});

test('a wiretap fold combines kernel events in their binary form, and gives the same result as a fold of the JSON messages by their fields', () => {
  const random = new Random(11);
  const ends = [1, 2, 3].map((end) => address(`10.0.0.${end}`));
  const ipv6 = [1n, 1n << 64n].map((end) => (0xfdn << 96n) | end);
  const input = (): EventInput => {
    const type = random.pick(['flow_opened', 'flow_ended', 'dropped', 'passed', 'flow_suspended'] as const);
    const isPacket = type === 'dropped' || type === 'passed';
    const isIpv6 = random.chance(0.3);
    return {
      type,
      verdict: random.pick(['allow', 'deny', null]),
      dropReason: type === 'dropped' || type === 'flow_ended' ? random.below(2) : 0,
      protocol: random.pick([IPPROTO.tcp, IPPROTO.udp, isIpv6 ? IPPROTO.icmpv6 : IPPROTO.icmp]),
      source: random.pick(ends),
      destination: random.pick(ends),
      sourcePort: random.below(1_000),
      destinationPort: random.pick([0, 443]),
      icmp: [random.below(2), 0],
      // The TCP flags of a packet, or the state of a flow.
      state: random.below(isPacket ? 64 : 2),
      flags: random.pick(isPacket ? [0, EVENT_FLAG.outgoing] : [0, EVENT_FLAG.foreign]),
      ...(isIpv6 ? { source: random.pick(ipv6), destination: random.pick(ipv6) } : {}),
      ...(['flow_opened', 'passed'].includes(type) && random.chance(0.3)
        ? { wire: { address: random.pick<Address>(isIpv6 ? ipv6 : ends), port: random.below(2) } }
        : {}),
    };
  };
  const batches = Array.from({ length: 20 }, (_, at) =>
    events(Array.from({ length: 200 }, input), () => random.below(1_000), 10 * at),
  );
  const { rows, frames } = folded(batches);
  const sorted = (messages: readonly Message[]) =>
    messages.map((one) => JSON.stringify(Object.entries(one).sort())).sort();
  expect(sorted(rows).join('\n')).toBe(sorted(oracle(batches)).join('\n'));
  expect(rows.length).toBeLessThan(3_000);
  expect(frames.reduce((sum, { messages }) => sum + messages, 0)).toBe(4_000);
});

test('a wiretap fold combines equal DNS lookups into one message, and so equal connections and requests', () => {
  const lookup = { source: address('10.0.0.7'), hostname: 'a.test', type: 1, generation: 7, word: 0 };
  const lookups: Seen = {
    kind: 'lookups',
    lookups: [
      { ...lookup, count: 2, lastMs: UNIX_MS },
      { ...lookup, count: 1, lastMs: UNIX_MS, type: 28 },
      { ...lookup, count: 3, lastMs: UNIX_MS + 200 },
    ],
  };
  const connections: Seen = {
    kind: 'connections',
    connections: [
      seenConnection({ atMs: UNIX_MS, sourcePort: 1 }),
      request('/a', { atMs: UNIX_MS, sourcePort: 2 }),
      request('/b', { atMs: UNIX_MS, sourcePort: 3 }),
      request('/a', { atMs: UNIX_MS + 5, sourcePort: 4 }),
      seenConnection({ atMs: UNIX_MS, sourcePort: 5, reason: 'no_sni' }),
    ],
  };
  const { rows, frames } = folded([lookups, connections]);
  const kept = ({ type, time, count, src_port: port, first_seen: first }: Message) => [type, time, count, port, first];
  const [start, later] = ['2026-01-31T00:00:00.000Z', '2026-01-31T00:00:00.200Z'];
  expect(rows.map(kept)).toEqual([
    ['dns', later, 5, undefined, start],
    ['dns', start, 1, undefined, start],
    ['tls', start, 1, 1, start],
    ['http', '2026-01-31T00:00:00.005Z', 2, 4, start],
    ['http', start, 1, 3, start],
    ['tls', start, 1, 5, start],
  ]);
  expect(frames.map(({ messages }) => messages)).toEqual([8]);
});

test('a wiretap fold is full with 4,096 rows, and its frames have at most the given number of messages', () => {
  const fold = new MessageFold(writer());
  const seen = events(
    Array.from({ length: 4_096 }, (_, at) => flow({ destinationPort: at })),
    () => 1,
  );
  for (let at = 0; at < 4_095; at++) for (const _ of [1, 2]) fold.add(seen, at);
  expect(fold.isFull).toBe(false);
  fold.add(seen, 4_095);
  expect([fold.isFull, fold.size]).toEqual([true, 4_096]);
  const frames = fold.drain(1_000);
  expect(frames.map(({ rows, messages }) => [rows, messages])).toEqual([
    [1_000, 2_000],
    [1_000, 2_000],
    [1_000, 2_000],
    [1_000, 2_000],
    [96, 191],
  ]);
  const ports = frames.flatMap(({ bytes }) => textOf(bytes)).map(({ dst_port: port }) => port);
  expect(ports).toEqual(Array.from({ length: 4_096 }, (_, port) => port));
  for (let at = 0; at < 2; at++) fold.add(seen, at);
  expect(fold.drain(1).map(({ rows, messages }) => [rows, messages])).toEqual([
    [1, 1],
    [1, 1],
  ]);
});
