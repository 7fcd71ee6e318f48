import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bitsOf, formatPrefix, LAST_ADDRESS, mask, parseAddress, parseCidr } from '#addresses/ip-address.js';
import { itemAt, u8At, u16At, u32At } from '#arrays/read.js';
import { FOLDED_DESTINATION, lengthsOf, type SeenFlows, VERDICT_BITS } from '#contracts/analysis/seen-flows.js';
import { DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import { ADDRESS_WORDS, addressAt, wordsOf } from '#contracts/policy/address-words.js';
import { type Address, FAMILIES, type Family, IPPROTO } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import { EVENT_FLAG } from '#dataplane/events/event.js';
import { FlowHistory } from '#observe/flow-history/flow-history.js';
import { openFlowHistory } from '#observe/flow-history/flow-history-file.js';
import { FlowTable } from '#observe/flow-history/flow-table.js';
import { listedFlows, type SeenFlowQuery } from '#observe/flow-history/listed-flows.js';
import { AddressNames } from '#observe/names/address-names.js';
import { address } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { batchOf, type EventInput } from './events.js';

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;
const START = 1_000_000 * HOUR;
const OPTIONS = { retentionMs: 24 * HOUR, maxFlows: 1_000 };
const CLIENT = address('10.0.0.7');
const SERVER = address('192.0.2.1');

const event = (given: EventInput): EventInput => ({
  source: CLIENT,
  destination: SERVER,
  destinationPort: 443,
  ...given,
});
const denied = (given: Partial<EventInput> = {}): EventInput =>
  event({ type: 'denied', verdict: 'deny', dropReason: DROP_REASON.policy_deny, ...given });

/** Returns rows as texts: source, destination, service, passed+denied, verdict, names, seconds of `START`. */
function rowsOf(seen: SeenFlows): string[] {
  return FAMILIES.flatMap((family) => {
    const rows = seen[family];
    const textOf = (column: Uint32Array, row: number, length: number): string =>
      formatPrefix({ address: addressAt(column, row * ADDRESS_WORDS[family], family), length }).replace(
        `/${bitsOf(LAST_ADDRESS[family])}`,
        '',
      );
    return Array.from({ length: rows.count }, (_, row) => {
      const service = u32At(rows.services, row);
      const lengths = lengthsOf(service, family);
      return [
        textOf(rows.sources, row, lengths.source),
        textOf(rows.destinations, row, lengths.destination),
        `${(service >>> 16) & 255}/${service >= FOLDED_DESTINATION ? '*' : service & 0xffff}`,
        `${u32At(rows.passed, row)}+${u32At(rows.denied, row)}`,
        verdictOf(u8At(rows.verdicts, row) & VERDICT_BITS),
        (seen.names[u16At(rows.nameLists, row)] ?? []).join(','),
        `${u32At(rows.first, row) - START / 1_000}-${u32At(rows.last, row) - START / 1_000}`,
      ].join(' ');
    });
  });
}

const ipv6 = (text: string): bigint => BigInt(parseAddress(text) ?? 0);

describe('the flow history', () => {
  const names = new AddressNames();
  const read = (events: readonly (readonly [seconds: number, events: readonly EventInput[]])[]): string[] => {
    const history = new FlowHistory(OPTIONS, START);
    for (const [seconds, batch] of events)
      history.add(batchOf(batch, { unixMs: START + seconds * 1_000 }), names, START + seconds * 1_000);
    return rowsOf(history.read(START + 100_000));
  };

  test('counts each opened flow once, whatever its source port, and keeps the time of its end', () => {
    const opened = (sourcePort: number) => event({ type: 'flow_opened', sourcePort });
    expect(
      read([
        [1, [opened(1_000), opened(1_001)]],
        [9, [event({ type: 'flow_ended', sourcePort: 1_000 })]],
      ]),
    ).toEqual(['10.0.0.7 192.0.2.1 6/443 2+0 allow  1-9']);
  });

  test('keeps the verdict of the last event: denied packets, and flows that a later policy refuses', () => {
    const to = (destinationPort: number) => ({ destinationPort });
    expect(
      read([
        [1, [event({ type: 'flow_opened', ...to(1) }), event({ type: 'flow_opened', ...to(2), verdict: 'redirect' })]],
        [2, [denied(to(1)), denied(to(1)), event({ type: 'flow_opened', ...to(3), verdict: 'audit' })]],
        [3, [event({ type: 'flow_suspended', ...to(3), verdict: 'deny', dropReason: DROP_REASON.policy_deny })]],
      ]),
    ).toEqual([
      '10.0.0.7 192.0.2.1 6/1 1+2 deny  1-2',
      '10.0.0.7 192.0.2.1 6/2 1+0 redirect  1-1',
      '10.0.0.7 192.0.2.1 6/3 1+0 deny  2-3',
    ]);
  });

  test('has IPv6 flows apart from IPv4 flows with the same bits, with the type and code of ICMPv6 and the names of the destination', () => {
    const [source, destination] = [ipv6('2001:db8:1::7'), ipv6('2001:db8:2::9')];
    names.add(destination, 'six.example.com');
    const of = (given: EventInput) => event({ source, destination, ...given });
    const icmp = { protocol: IPPROTO.icmpv6, destinationPort: 0 };
    const sameBits = { source: BigInt(CLIENT), destination: BigInt(SERVER) };
    expect(
      read([
        [
          1,
          [
            event({ type: 'flow_opened' }),
            event({ type: 'flow_opened', ...sameBits }),
            of({ type: 'flow_opened' }),
            of({ type: 'flow_opened', sourcePort: 9 }),
            of({ type: 'flow_opened', ...icmp }),
            denied({ source, destination, ...icmp, icmp: [3, 1] }),
            denied({ source, destination, ...icmp, protocol: IPPROTO.icmp, icmp: [3, 1] }),
            of({ type: 'passed', protocol: 47 }),
          ],
        ],
        [5, [of({ type: 'flow_ended' })]],
      ]),
    ).toEqual([
      '10.0.0.7 192.0.2.1 6/443 1+0 allow  1-1',
      '::a00:7 ::c000:201 6/443 1+0 allow  1-1',
      '2001:db8:1::7 2001:db8:2::9 6/443 2+0 allow six.example.com 1-5',
      `2001:db8:1::7 2001:db8:2::9 58/${128 * 256} 1+0 allow six.example.com 1-1`,
      `2001:db8:1::7 2001:db8:2::9 58/${3 * 256 + 1} 0+1 deny six.example.com 1-1`,
      '2001:db8:1::7 2001:db8:2::9 1/0 0+1 deny six.example.com 1-1',
      '2001:db8:1::7 2001:db8:2::9 47/0 1+0 allow six.example.com 1-1',
    ]);
  });

  test('does not record packets and flows that no rule decided: flows without policy, IPv6 that is not enforced, invalid packets, and allowed packets that were dropped', () => {
    expect(
      read([
        [
          1,
          [
            event({ type: 'flow_opened', flags: EVENT_FLAG.foreign }),
            event({ type: 'dropped', verdict: null, dropReason: DROP_REASON.malformed }),
            event({ type: 'dropped', verdict: 'allow', dropReason: DROP_REASON.out_of_state }),
            event({ type: 'dropped', verdict: null, dropReason: DROP_REASON.ipv6, source: 1n, destination: 2n }),
            denied({ verdict: 'allow', dropReason: DROP_REASON.flow_table_full }),
            event({ type: 'passed', verdict: null }),
          ],
        ],
      ]),
    ).toEqual([]);
  });

  test('records the type and code of ICMP, echo requests for ICMP flows, and the DNS names of the destination', () => {
    names.add(address('192.0.2.9'), 'www.example.com');
    const icmp = { protocol: IPPROTO.icmp, destination: address('192.0.2.9'), destinationPort: 0 };
    expect(read([[1, [denied({ ...icmp, icmp: [3, 1] }), event({ type: 'flow_opened', ...icmp })]]])).toEqual([
      `10.0.0.7 192.0.2.9 1/${3 * 256 + 1} 0+1 deny www.example.com 1-1`,
      `10.0.0.7 192.0.2.9 1/${8 * 256} 1+0 allow www.example.com 1-1`,
    ]);
  });

  test('reports for how long it recorded and how many events were lost, and removes flows after the retention time', () => {
    const history = new FlowHistory(OPTIONS, START);
    for (let minute = 1; minute <= 60; minute++) history.tick(START + minute * 60_000);
    history.setRecording(false, START + HOUR);
    history.add(batchOf([event({ type: 'flow_opened' })], { lost: 5, unixMs: START }), names, START + HOUR);
    const { coverage, ipv4 } = history.read(START + 3 * HOUR);
    expect([ipv4.count, coverage]).toEqual([
      1,
      {
        ...{ sinceS: START / 1_000, deniedSinceS: START / 1_000, untilS: (START + 3 * HOUR) / 1_000 },
        ...{ recordedS: 3_600, isRecording: false, folded: 0, lost: 5, unrecorded: 0 },
      },
    ]);
    const later = history.read(START + 25 * HOUR);
    expect([later.ipv4.count, later.coverage.sinceS]).toEqual([0, (START + HOUR) / 1_000]);
  });
});

describe('the table of flows', () => {
  const HTTP = portMapKey(IPPROTO.tcp, 80);
  const sighting = (source: Address, destination: Address, atS: number, passed = true, service = HTTP) => ({
    key: Uint32Array.of(...wordsOf(source), ...wordsOf(destination), service),
    ...{ atS, verdict: passed ? 1 : 2, passed, nameList: 0, times: 1 },
  });
  /** Returns the rows as texts: source, destination, port and how often it passed. */
  const textsOf = ({ columns, count, family }: FlowTable): string[] => {
    const none = { ...new FlowTable('ipv4', 16).columns, count: 0 };
    const coverage = new FlowHistory(OPTIONS, START).read(START).coverage;
    const seen = { ipv4: none, ipv6: none, [family]: { ...columns, count }, names: [[]], coverage };
    return rowsOf(seen).map((text) => text.split(' ').slice(0, 4).join(' '));
  };

  test('a scan by one source can use only its share of the table: its further flows are combined by network, and no flow of another source is removed', () => {
    const table = new FlowTable('ipv4', 1_600);
    for (let source = 0; source < 1_000; source++) table.record(sighting(source, SERVER, 1));
    let recorded = 0;
    for (let target = 0; target < 400_000; target++) if (table.record(sighting(CLIENT, target * 64, 2))) recorded++;
    const ofScan = [...table.columns.sources.subarray(0, table.count)].filter((source) => source === CLIENT);
    expect([table.count, ofScan.length, table.folded]).toEqual([1_200, 200, 100]);
    // 100 exact flows, and 100 networks of 1,024 targets each; the first network has the exact ones too.
    expect(recorded).toBe(100 * 1_024);
    expect(table.removedS).toEqual({ passed: 0, denied: 0 });
  });

  test('a full table removes the flows that were not seen for longest, and reports the time of the last removed flow', () => {
    const table = new FlowTable('ipv4', 1_600);
    for (let source = 0; source < 1_600; source++) table.record(sighting(source, SERVER, 10 + source));
    table.record(sighting(0, SERVER, 5_000));
    table.record(sighting(9_999, SERVER, 5_001));
    const sources = new Set(table.columns.sources.subarray(0, table.count));
    expect([table.count, sources.has(0), sources.has(1), sources.has(200), sources.has(201)]).toEqual([
      ...[1_401, true, false, false, true],
    ]);
    expect(table.removedS).toEqual({ passed: 210, denied: 210 });
  });

  test('a flood of denied packets from many sources removes no flow that was allowed', () => {
    const table = new FlowTable('ipv4', 1_600);
    for (let source = 0; source < 700; source++) table.record(sighting(source, SERVER, 1));
    for (let source = 0; source < 100_000; source++) table.record(sighting(1_000 + source, SERVER, 2 + source, false));
    const kept = [...table.columns.sources.subarray(0, table.count)].filter((source) => source < 700);
    expect([kept.length, table.removedS.passed]).toEqual([700, 0]);
    expect(table.removedS.denied).toBeGreaterThan(90_000);
  });

  test('temporary addresses of one /64 prefix take the share of one source, and then are one row for each destination and port', () => {
    const table = new FlowTable('ipv6', 1_600);
    const [lan, other] = [ipv6('2001:db8:1::'), ipv6('2001:db8:2::')];
    table.record(sighting(other, lan, 1));
    // Ten hosts use 100 temporary addresses each for three servers.
    for (let host = 0n; host < 1_000n; host++)
      for (let server = 1n; server <= 3n; server++) table.record(sighting(lan + (host << 32n) + 7n, other + server, 2));
    expect([table.count, table.folded, table.removedS]).toEqual([1 + 100 + 3, 3, { passed: 0, denied: 0 }]);
    expect(textsOf(table).slice(-3)).toEqual([
      '2001:db8:1::/64 2001:db8:2::2 6/80 967+0',
      '2001:db8:1::/64 2001:db8:2::3 6/80 967+0',
      '2001:db8:1::/64 2001:db8:2::1 6/80 966+0',
    ]);
    // An address with a row keeps it. A host of another prefix has its own share.
    expect(table.record(sighting(lan + 7n, other + 1n, 3))).toBe(true);
    expect(textsOf(table)[1]).toBe('2001:db8:1::7 2001:db8:2::1 6/80 2+0');
    expect(table.record(sighting(other, lan + 1n, 3))).toBe(true);
    expect([table.count, table.folded]).toEqual([105, 3]);
  });

  test('a scan from one /64 prefix takes its three shares: exact rows, rows of the prefix, and networks of /32', () => {
    const table = new FlowTable('ipv6', 1_600);
    const scanner = ipv6('2001:db8:1::');
    let recorded = 0;
    for (let target = 0n; target < 100_000n; target++)
      if (
        table.record(
          sighting(scanner + target, (0x2a00_0000n + target / 100n) << 96n, 2, true, HTTP + Number(target % 100n)),
        )
      )
        recorded++;
    // Each network of /32 has 100 targets, and the first two are the rows before.
    expect([table.count, table.folded, recorded]).toEqual([300, 200, 200 + 100 * 100]);
    expect([0, 100, 200].map((row) => textsOf(table)[row])).toEqual([
      '2001:db8:1:: 2a00:: 6/80 1+0',
      '2001:db8:1::/64 2a00:1:: 6/80 1+0',
      '2001:db8:1::/64 2a00:2::/32 6/* 100+0',
    ]);
  });

  test.each(FAMILIES)('finds each of many random flows of %s again after it grew', (family) => {
    const table = new FlowTable(family, 100_000);
    const addressOf = (number: number): Address =>
      family === 'ipv4' ? number : (BigInt(number) << 96n) | (BigInt(number) << 20n) | 5n;
    const flows = Array.from({ length: 50_000 }, (_, at) =>
      sighting(addressOf(at % 997), addressOf(Math.imul(at, 0x9e37_79b1) >>> 0), at),
    );
    for (const flow of [...flows, ...flows]) table.record(flow);
    expect(table.count).toBe(50_000);
    expect(table.columns.passed.subarray(0, table.count).every((count) => count === 2)).toBe(true);
  });

  test.each(FAMILIES)('random sightings of %s are in the rows that a walk over the foldings gives them', (family) => {
    const random = new Random(seedOf(5));
    const bits = bitsOf(LAST_ADDRESS[family]);
    const isIpv4 = family === 'ipv4';
    const networks = Array.from({ length: 60 }, () => mask(randomAddress(random, family), isIpv4 ? 16 : 32));
    const sharers = Array.from({ length: 4 }, () => mask(randomAddress(random, family), isIpv4 ? 32 : 64));
    const within = (network: Address, offset: number): Address =>
      typeof network === 'number' ? network + offset : network + (BigInt(offset) << BigInt(random.pick([0, 40])));
    const foldings = isIpv4
      ? [
          [32, 32],
          [32, 16],
        ]
      : [
          [128, 128],
          [64, 128],
          [64, 32],
        ];
    const textOf = (at: Address, length: number) =>
      formatPrefix({ address: mask(at, length), length }).replace(`/${bits}`, '');
    const table = new FlowTable(family, 480);
    const expected = new Map<string, number>();
    const rows = new Map<string, Set<string>>();
    let left = 0;
    for (let count = 0; count < 8_000; count++) {
      const sharer = random.pick(sharers);
      const source = isIpv4 ? sharer : within(sharer, random.below(4));
      const destination = within(random.pick(networks), random.below(4));
      const port = random.below(4);
      const isRecorded = foldings.some(([from = 0, to = 0], number) => {
        const text = `${textOf(source, from)} ${textOf(destination, to)} 6/${to === bits ? port : '*'}`;
        const own = rows.get(`${sharer} ${number}`) ?? new Set();
        rows.set(`${sharer} ${number}`, own);
        // A sixteenth of 480 rows.
        if (!own.has(text) && own.size >= 30) return false;
        own.add(text);
        expected.set(text, (expected.get(text) ?? 0) + 1);
        return true;
      });
      expect(table.record(sighting(source, destination, 1, true, portMapKey(IPPROTO.tcp, port)))).toBe(isRecorded);
      if (!isRecorded) left++;
    }
    expect(new Set(textsOf(table))).toEqual(new Set([...expected].map(([text, times]) => `${text} ${times}+0`)));
    expect([table.count, table.folded]).toEqual([expected.size, expected.size - 4 * 30]);
    expect(left).toBeGreaterThan(100);
  });
});

function randomAddress(random: Random, family: Family): Address {
  if (family === 'ipv4') return random.word();
  return Array.from({ length: 4 }, () => BigInt(random.word())).reduce((value, word) => (value << 32n) | word, 0n);
}

describe('the file of the flow history', () => {
  let folder: string;
  let said: string[];
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'weir-flow-history-'));
    said = [];
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));
  const open = (options = OPTIONS) =>
    openFlowHistory(join(folder, 'flow-history'), options, {
      trouble: (code, message) => said.push(`${code}: ${message.replaceAll(folder, '')}`),
      relief: (code) => said.push(code),
    });
  const names = new AddressNames();
  names.add(SERVER, 'www.example.com');
  names.add(SERVER, 'example.com');

  test('keeps flows, names and coverage over a restart', async () => {
    const now = Date.now();
    const first = open();
    first?.history.add(batchOf([event({ type: 'flow_opened' }), denied()], { lost: 3, unixMs: now }), names, now);
    const before = first?.history.read(now);
    await first?.close();
    const after = open()?.history.read(now);
    expect(after).toEqual(before);
    expect([after?.ipv4.count, after?.names[2], after?.coverage.lost]).toEqual([
      1,
      ['example.com', 'www.example.com'],
      3,
    ]);
    expect(said).toEqual([]);
  });

  test('keeps random flows of both families over restarts, also while the tables are full', async () => {
    const random = new Random(seedOf(6));
    const now = Date.now();
    const addresses = FAMILIES.map((family) => Array.from({ length: 30 }, () => randomAddress(random, family)));
    for (const each of addresses.flat()) if (random.chance(0.3)) names.add(each, `host${random.below(9)}.example.com`);
    // The recorded time goes on.
    const timeless = (seen: SeenFlows | undefined) => ({ ...seen, coverage: { ...seen?.coverage, recordedS: 0 } });
    let stored: SeenFlows | undefined;
    for (let restart = 0; restart < 6; restart++) {
      const history = open();
      if (restart > 0) expect(timeless(history?.history.read(now))).toEqual(timeless(stored));
      const events = Array.from({ length: 2_000 }, (): EventInput => {
        const of = random.pick(addresses);
        const given = {
          source: random.pick(of),
          destination: random.pick(of),
          destinationPort: random.below(3),
          timeNs: BigInt(restart * 40 + random.below(40)) * 1_000_000_000n,
        };
        return random.chance(0.4) ? denied(given) : event({ type: 'flow_opened', ...given });
      });
      history?.history.add(batchOf(events, { unixMs: now - 300_000 }), names, now);
      stored = history?.history.read(now);
      expect(Math.min(stored?.ipv4.count ?? 0, stored?.ipv6.count ?? 0)).toBeGreaterThan(500);
      await history?.close();
    }
    expect(said).toEqual([]);
  });

  /** Writes the file of a build that recorded IPv4 alone. */
  function writeIpv4File(rows: readonly (readonly [source: number, lastS: number])[], sinceS: number): void {
    const header = { count: rows.length, names: [[], [], ['www.example.com']], hours: [], sinceS };
    const text = Buffer.from(JSON.stringify({ ...header, removedS: { passed: 0, denied: sinceS + 5 } }));
    const words = (values: readonly number[]): Buffer => Buffer.from(Uint32Array.from(values).buffer);
    const each = (value: number): number[] => rows.map(() => value);
    const columns = [
      ...[rows.map(([source]) => source), each(SERVER), each(portMapKey(IPPROTO.tcp, 443))].map(words),
      ...[rows.map(([, lastS]) => lastS - 9), rows.map(([, lastS]) => lastS), each(4), each(2)].map(words),
      Buffer.from(Uint16Array.from(each(2)).buffer),
      Buffer.from(each(1 + 8)),
    ];
    const length = Buffer.alloc(4);
    length.writeUInt32LE(text.length);
    const content = Buffer.concat([Buffer.from('weirfh01'), length, text, ...columns]);
    const digest = createHash('sha256').update(content).digest();
    writeFileSync(join(folder, 'flow-history'), Buffer.concat([content, digest]));
  }

  test('reads the file of an earlier build, and shortens the coverage once an IPv6 flow is there that this build did not record', async () => {
    const nowS = Math.floor(Date.now() / 1_000);
    writeIpv4File(
      [
        [CLIENT, nowS - 100],
        [CLIENT + 1, nowS - 50],
      ],
      nowS - 1_000,
    );
    const first = open();
    const before = first?.history.read(Date.now());
    const relative = (seen = before): string[] => rowsOf(seen as SeenFlows).map((text) => text.replace(/ \S+$/, ''));
    const old = [
      '10.0.0.7 192.0.2.1 6/443 4+2 allow www.example.com',
      '10.0.0.8 192.0.2.1 6/443 4+2 allow www.example.com',
    ];
    expect(relative()).toEqual(old);
    expect([before?.coverage.sinceS, before?.coverage.deniedSinceS]).toEqual([nowS - 1_000, nowS - 994]);

    await first?.close();
    const second = open();
    expect(second?.history.read(Date.now()).coverage.sinceS).toBe(nowS - 1_000);
    const six = { type: 'flow_opened', source: ipv6('2001:db8::1'), destination: ipv6('2001:db8::2') } as const;
    second?.history.add(batchOf([event(six)], { unixMs: Date.now() }), names, Date.now());
    await second?.close();
    const after = open()?.history.read(Date.now());
    expect(relative(after)).toEqual([...old, '2001:db8::1 2001:db8::2 6/443 1+0 allow ']);
    expect(after?.coverage.sinceS).toBeGreaterThan(nowS);
    expect(readFileSync(join(folder, 'flow-history')).toString('latin1', 0, 8)).toBe('weirfh02');
    expect(said).toEqual([]);
  });

  test.each([
    ['is cut', (content: Buffer) => content.subarray(0, -1), 'its length is wrong'],
    [
      'has another number of rows',
      (content: Buffer) => replaced(content, '"count":1', '"count":2'),
      'its length is wrong',
    ],
    ['has no count', (content: Buffer) => replaced(content, '"count"', '"rows!"'), 'count'],
  ])('a file of an earlier build that %s, with a right checksum, is set aside', async (_, damaged, reason) => {
    const path = join(folder, 'flow-history');
    const nowS = Math.floor(Date.now() / 1_000);
    writeIpv4File([[CLIENT, nowS]], nowS - 9);
    const content = damaged(readFileSync(path).subarray(0, -32));
    writeFileSync(path, Buffer.concat([content, createHash('sha256').update(content).digest()]));
    const history = open();
    expect(history?.history.count).toBe(0);
    await history?.close();
    expect(said).toEqual([expect.stringContaining(reason)]);
  });

  function replaced(content: Buffer, from: string, to: string): Buffer {
    return Buffer.from(content.toString('latin1').replace(from, to), 'latin1');
  }

  test.each([
    ['a changed byte', (file: Buffer) => file.fill(7, 40, 41), 'its checksum is wrong'],
    ['a file that is cut', (file: Buffer) => file.subarray(0, -1), 'its checksum is wrong'],
    [
      'another format',
      () => Buffer.from('something else, and longer than a header and a checksum'),
      'it is not a flow-history file of a known format',
    ],
    ['an empty file', () => Buffer.alloc(0), 'it is not a flow-history file of a known format'],
  ])('%s is renamed and reported, and the history begins empty', async (_, damaged, reason) => {
    const path = join(folder, 'flow-history');
    const first = open();
    first?.history.add(batchOf([event({ type: 'flow_opened' })], { unixMs: Date.now() }), names, Date.now());
    await first?.close();
    writeFileSync(path, damaged(readFileSync(path)));
    const second = open();
    expect(second?.history.count).toBe(0);
    await second?.close();
    expect(said).toEqual([
      expect.stringContaining(`store_quarantined: read the flow history /flow-history: ${reason}; the damaged files`),
    ]);
    expect(readdirSync(folder).map((name) => name.replace(/damaged-.*/, 'damaged-'))).toEqual([
      'flow-history',
      'flow-history.damaged-',
    ]);
    expect(open()?.history.count).toBe(0);
  });

  test('a file that cannot be written is reported once, until it is written again', async () => {
    const history = open();
    rmSync(folder, { recursive: true });
    await history?.close();
    await history?.close();
    expect(said).toEqual([expect.stringContaining('flow_history_not_stored: store the flow history: ENOENT')]);
  });

  test('without a retention, no flows are recorded, and the file is removed', () => {
    writeFileSync(join(folder, 'flow-history'), 'x');
    expect(open({ ...OPTIONS, retentionMs: 0 })).toBeNull();
    expect(readdirSync(folder)).toEqual([]);
  });

  test('a smaller maximum keeps the flows that were seen last', async () => {
    const now = Date.now();
    const first = open({ ...OPTIONS, maxFlows: 4_000 });
    const events = Array.from({ length: 3_000 }, (_, at) =>
      event({ type: 'flow_opened', source: at, timeNs: BigInt(at) * 1_000_000_000n }),
    );
    first?.history.add(batchOf(events, { unixMs: now - 3_000_000 }), names, now);
    await first?.close();
    const history = open()?.history.read(now);
    expect([history?.ipv4.count, Math.min(...(history?.ipv4.sources ?? []))]).toEqual([1_000, 2_000]);
    expect(history?.coverage.sinceS).toBeGreaterThan(now / 1_000 - 1_010);
  });
});

describe('the list of seen flows', () => {
  const names = new AddressNames();
  names.add(SERVER, 'www.example.com');
  const OTHER = address('198.51.100.9');
  const history = new FlowHistory(OPTIONS, START);
  const see = (seconds: number, given: EventInput): void => {
    const at = START + seconds * SECOND;
    history.add(batchOf([event(given)], { unixMs: at }), names, at);
  };
  for (let at = 0; at < 3; at++) see(at, { type: 'flow_opened' });
  see(10, { type: 'flow_opened', destination: OTHER, destinationPort: 80 });
  see(20, denied({ source: address('10.1.0.1'), destination: OTHER, destinationPort: 22 }));
  const every: SeenFlowQuery = {
    ...{ sources: [], destinations: [], ports: [], protocols: [], hostnames: [], verdicts: [] },
    ...{ sinceS: 0, order: 'last_seen', limit: 10 },
  };
  const listed = (given: Partial<SeenFlowQuery>) => listedFlows(history.read(START + 60_000), { ...every, ...given });
  const network = (text: string, length: number) => ({ address: address(text), length });
  const prefix = (text: string) =>
    itemAt(
      [parseCidr(text)?.prefix].flatMap((parsed) => parsed ?? []),
      0,
    );

  test.each<[string, Partial<SeenFlowQuery>, number[]]>([
    ['no filter', {}, [22, 80, 443]],
    ['the most frequent first', { order: 'count' }, [443, 80, 22]],
    ['a source network', { sources: [network('10.0.0.0', 24)] }, [80, 443]],
    ['a destination', { destinations: [network('198.51.100.9', 32)] }, [22, 80]],
    ['a range of ports', { ports: [{ low: 23, high: 443 }] }, [80, 443]],
    ['another protocol', { protocols: [IPPROTO.udp] }, []],
    ['a pattern of names', { hostnames: ['*.example.com'] }, [443]],
    ['a name that nobody has', { hostnames: ['example.com'] }, []],
    ['a verdict', { verdicts: ['deny'] }, [22]],
    ['a time', { sinceS: START / SECOND + 10 }, [22, 80]],
  ])('with %s, the list has the flows that match', (_, given, ports) => {
    expect(listed(given).flows.map(({ dst_port: port }) => port)).toEqual(ports);
  });

  test('the list has IPv6 flows by their addresses and prefixes, in the order of both families, and writes addresses as RFC 5952', () => {
    const both = new FlowHistory(OPTIONS, START);
    const add = (seconds: number, given: EventInput): void =>
      both.add(batchOf([event(given)], { unixMs: START + seconds * SECOND }), names, START + seconds * SECOND);
    const to = (source: string, destination: string) => ({ source: ipv6(source), destination: ipv6(destination) });
    add(1, { type: 'flow_opened', ...to('2001:DB8:0:1::7', '2001:db8:f::1'), destinationPort: 1 });
    add(2, { type: 'flow_opened', destinationPort: 2 });
    add(3, { type: 'flow_opened', ...to('2001:db8:0:1::8', 'fd00:0:0:1:0:0:0:1'), destinationPort: 3 });
    add(4, denied({ ...to('2001:db8:0:2::8', '2001:db8:f::1'), protocol: IPPROTO.icmpv6, icmp: [129, 2] }));
    const texts = (given: Partial<SeenFlowQuery>) =>
      listedFlows(both.read(START + 60_000), { ...every, ...given }).flows.map(
        ({ src_ip: from, dst_ip: at, dst_port: port, icmp_type: type, icmp_code: code }) =>
          `${from} ${at} ${port ?? `${type}:${code}`}`,
      );
    const [one, two, three, four] = [
      '2001:db8:0:1::7 2001:db8:f::1 1',
      '10.0.0.7 192.0.2.1 2',
      '2001:db8:0:1::8 fd00:0:0:1::1 3',
      '2001:db8:0:2::8 2001:db8:f::1 129:2',
    ];
    expect(texts({})).toEqual([four, three, two, one]);
    expect(texts({ limit: 2 })).toEqual([four, three]);
    expect(texts({ sources: [prefix('2001:db8:0:1::/64')] })).toEqual([three, one]);
    expect(texts({ sources: [prefix('2001:db8:0:1::8/125')] })).toEqual([three]);
    expect(texts({ destinations: [prefix('2001:db8:f::1')] })).toEqual([four, one]);
    expect(texts({ destinations: [prefix('fd00::/8'), prefix('192.0.2.0/24')] })).toEqual([three, two]);
    expect(texts({ sources: [prefix('::/0')] })).toEqual([four, three, one]);
    expect(texts({ sources: [prefix('0.0.0.0/0')] })).toEqual([two]);
    expect(texts({ sources: [prefix('2001:db8::/32')], destinations: [prefix('10.0.0.0/8')] })).toEqual([]);
    expect(texts({ protocols: [IPPROTO.icmpv6] })).toEqual([four]);
  });

  test('a row of a /64 prefix is in each network that overlaps with it, and has its port and name', () => {
    const folding = new FlowHistory({ ...OPTIONS, maxFlows: 16 }, START);
    const server = ipv6('2001:db8:f::1');
    names.add(server, 'six.example.com');
    for (let host = 0n; host < 3n; host++) {
      const seen = event({ type: 'flow_opened', source: ipv6('2001:db8:0:1::') + host, destination: server });
      folding.add(batchOf([seen], { unixMs: START }), names, START);
    }
    const from = (source: string) =>
      listedFlows(folding.read(START), { ...every, sources: [prefix(source)] }).flows.map(
        ({ folded, src_ip: at, dst_ip: to, dst_port: port, hostname, connections }) =>
          `${folded} ${at} ${to} ${port} ${hostname} ${connections}`,
      );
    const row = 'true 2001:db8:0:1::/64 2001:db8:f::1 443 six.example.com 2';
    expect(from('2001:db8:0:1:ffff::/80')).toEqual([row]);
    expect(from('2001:db8::/48')).toEqual(['false 2001:db8:0:1:: 2001:db8:f::1 443 six.example.com 1', row]);
    expect(from('2001:db8:0:2::/64')).toEqual([]);
  });

  test('the list of recorded flows counts the flows beyond its limit, and states which period the record covers', () => {
    const { matched, connections, denied: refused, flows, coverage } = listed({ limit: 1 });
    expect([matched, connections, refused, flows]).toEqual([
      3,
      4,
      1,
      [
        {
          ...{ folded: false, src_ip: '10.1.0.1', dst_ip: '198.51.100.9', hostname: null },
          ...{ proto: 6, dst_port: 22, icmp_type: null, icmp_code: null, connections: 0, denied: 1 },
          first_seen: new Date(START + 20_000).toISOString(),
          last_seen: new Date(START + 20_000).toISOString(),
          last_verdict: 'deny',
        },
      ],
    ]);
    expect([coverage.flows, coverage.recording, coverage.since]).toEqual([3, true, new Date(START).toISOString()]);
  });

  test('a record that combines several flows matches each destination network that overlaps with its own network', () => {
    const folding = new FlowHistory({ ...OPTIONS, maxFlows: 16 }, START);
    for (let at = 0; at < 3; at++)
      folding.add(batchOf([event({ type: 'flow_opened', destinationPort: at })], { unixMs: START }), names, START);
    const within = (text: string, length: number) =>
      listedFlows(folding.read(START), { ...every, destinations: [network(text, length)] }).flows.map(
        ({ folded, dst_ip: to }) => [folded, to],
      );
    expect(within('192.0.77.0', 24)).toEqual([[true, '192.0.0.0/16']]);
    expect(within('192.1.0.0', 16)).toEqual([]);
  });
});
