import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { u8At, u16At, u32At } from '#arrays/read.js';
import { FOLDED, type SeenFlows, VERDICT_BITS } from '#contracts/analysis/seen-flows.js';
import { DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import { EVENT_FLAG } from '#dataplane/events/event.js';
import { FlowHistory } from '#observe/flow-history/flow-history.js';
import { openFlowHistory } from '#observe/flow-history/flow-history-file.js';
import { FlowTable } from '#observe/flow-history/flow-table.js';
import { listedFlows, type SeenFlowQuery } from '#observe/flow-history/listed-flows.js';
import { AddressNames } from '#observe/names/address-names.js';
import { formatAddress } from '#policy/model/ip-address.js';
import { address } from '#test/policy/sample.js';
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
  return Array.from({ length: seen.count }, (_, row) => {
    const service = u32At(seen.services, row);
    const isFolded = service >= FOLDED;
    return [
      formatAddress(u32At(seen.sources, row)),
      formatAddress(u32At(seen.destinations, row)) + (isFolded ? '/16' : ''),
      `${(service >>> 16) & 255}/${service & 0xffff}`,
      `${u32At(seen.passed, row)}+${u32At(seen.denied, row)}`,
      verdictOf(u8At(seen.verdicts, row) & VERDICT_BITS),
      (seen.names[u16At(seen.nameLists, row)] ?? []).join(','),
      `${u32At(seen.first, row) - START / 1_000}-${u32At(seen.last, row) - START / 1_000}`,
    ].join(' ');
  });
}

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

  test('leaves out what no rule decided: foreign flows, IPv6, invalid packets, and allowed packets that were dropped', () => {
    const ipv6 = Array.from({ length: 16 }, () => 1);
    expect(
      read([
        [
          1,
          [
            event({ type: 'flow_opened', flags: EVENT_FLAG.foreign }),
            event({ type: 'dropped', verdict: null, dropReason: DROP_REASON.malformed }),
            event({ type: 'dropped', verdict: 'allow', dropReason: DROP_REASON.out_of_state }),
            event({ type: 'dropped', verdict: null, dropReason: DROP_REASON.ipv6, ipv6: [ipv6, ipv6] }),
            denied({ verdict: 'allow', dropReason: DROP_REASON.flow_table_full }),
            event({ type: 'passed', verdict: null }),
          ],
        ],
      ]),
    ).toEqual([]);
  });

  test('has the type and code of ICMP, echo requests for ICMP flows, and the names of the destination', () => {
    names.add(address('192.0.2.9'), 'www.example.com');
    const icmp = { protocol: IPPROTO.icmp, destination: address('192.0.2.9'), destinationPort: 0 };
    expect(read([[1, [denied({ ...icmp, icmp: [3, 1] }), event({ type: 'flow_opened', ...icmp })]]])).toEqual([
      `10.0.0.7 192.0.2.9 1/${3 * 256 + 1} 0+1 deny www.example.com 1-1`,
      `10.0.0.7 192.0.2.9 1/${8 * 256} 1+0 allow www.example.com 1-1`,
    ]);
  });

  test('tells for how long it recorded, what was lost, and forgets flows after the retention', () => {
    const history = new FlowHistory(OPTIONS, START);
    for (let minute = 1; minute <= 60; minute++) history.tick(START + minute * 60_000);
    history.setRecording(false, START + HOUR);
    history.add(batchOf([event({ type: 'flow_opened' })], { lost: 5, unixMs: START }), names, START + HOUR);
    const { coverage, count } = history.read(START + 3 * HOUR);
    expect([count, coverage]).toEqual([
      1,
      {
        ...{ sinceS: START / 1_000, deniedSinceS: START / 1_000, untilS: (START + 3 * HOUR) / 1_000 },
        ...{ recordedS: 3_600, isRecording: false, folded: 0, lost: 5, unrecorded: 0 },
      },
    ]);
    const later = history.read(START + 25 * HOUR);
    expect([later.count, later.coverage.sinceS]).toEqual([0, (START + HOUR) / 1_000]);
  });
});

describe('the table of flows', () => {
  const sighting = (source: number, destination: number, atS: number, passed = true) => ({
    ...{ source, destination, service: 6 * 65_536 + 80, atS, verdict: passed ? 1 : 2, passed, nameList: 0, times: 1 },
  });

  test('a scan by one source takes its share, is folded by network, and removes no flow of another source', () => {
    const table = new FlowTable(1_600);
    for (let source = 0; source < 1_000; source++) table.record(sighting(source, SERVER, 1));
    let recorded = 0;
    for (let target = 0; target < 400_000; target++) if (table.record(sighting(CLIENT, target * 64, 2))) recorded++;
    const ofScan = [...table.columns.sources.subarray(0, table.count)].filter((source) => source === CLIENT);
    expect([table.count, ofScan.length, table.folded]).toEqual([1_200, 200, 100]);
    // 100 exact flows, and 100 networks of 1,024 targets each; the first network has the exact ones too.
    expect(recorded).toBe(100 * 1_024);
    expect(table.removedS).toEqual({ passed: 0, denied: 0 });
  });

  test('a full table removes the flows that were last seen longest ago, and says until when they were', () => {
    const table = new FlowTable(1_600);
    for (let source = 0; source < 1_600; source++) table.record(sighting(source, SERVER, 10 + source));
    table.record(sighting(0, SERVER, 5_000));
    table.record(sighting(9_999, SERVER, 5_001));
    const sources = new Set(table.columns.sources.subarray(0, table.count));
    expect([table.count, sources.has(0), sources.has(1), sources.has(200), sources.has(201)]).toEqual([
      ...[1_401, true, false, false, true],
    ]);
    expect(table.removedS).toEqual({ passed: 210, denied: 210 });
  });

  test('a flood of denied packets from many sources removes no flow that passed', () => {
    const table = new FlowTable(1_600);
    for (let source = 0; source < 700; source++) table.record(sighting(source, SERVER, 1));
    for (let source = 0; source < 100_000; source++) table.record(sighting(1_000 + source, SERVER, 2 + source, false));
    const kept = [...table.columns.sources.subarray(0, table.count)].filter((source) => source < 700);
    expect([kept.length, table.removedS.passed]).toEqual([700, 0]);
    expect(table.removedS.denied).toBeGreaterThan(90_000);
  });

  test('finds each of many random flows again after it grew', () => {
    const table = new FlowTable(100_000);
    const flows = Array.from({ length: 50_000 }, (_, at) => sighting(at % 997, Math.imul(at, 0x9e37_79b1) >>> 0, at));
    for (const flow of [...flows, ...flows]) table.record(flow);
    expect(table.count).toBe(50_000);
    expect(table.columns.passed.subarray(0, table.count).every((count) => count === 2)).toBe(true);
  });
});

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
    expect([after?.count, after?.names[2], after?.coverage.lost]).toEqual([1, ['example.com', 'www.example.com'], 3]);
    expect(said).toEqual([]);
  });

  test.each([
    ['a changed byte', (file: Buffer) => file.fill(7, 40, 41), 'its checksum is wrong'],
    ['a file that is cut', (file: Buffer) => file.subarray(0, -1), 'its checksum is wrong'],
    [
      'another format',
      () => Buffer.from('something else, and longer than a header and a checksum'),
      'it has another format',
    ],
    ['an empty file', () => Buffer.alloc(0), 'it has another format'],
  ])('%s is set aside and reported, and the history begins empty', async (_, damaged, reason) => {
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
    expect([history?.count, Math.min(...(history?.sources ?? []))]).toEqual([1_000, 2_000]);
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

  test('the list counts what its limit leaves out, and says what the record covers', () => {
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

  test('a folded flow is in each destination network that overlaps with its own', () => {
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
