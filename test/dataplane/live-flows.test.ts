import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { formatAddress, parseCidr } from '#addresses/ip-address.js';
import type { FlowFilter, FlowPage, LiveFlow } from '#contracts/datapath/datapath.js';
import { DEFAULT_TIMEOUTS_MS } from '#contracts/datapath/datapath-options.js';
import { IPPROTO, type Packet, type Policy, type Prefix } from '#contracts/policy/policy-model.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { compile } from '#policy/compile/compile.js';
import { LIVE_FLOW } from '#test/api/listed-flow.js';
import { group, icmp, ipv6Packet, packet, policy, rule } from '#test/policy/sample.js';
import { TCP, writeFrame } from './frame.js';
import { DROPPED, type Loaded, loadForTest, PASSED } from './loaded.js';

const lan = policy(
  [
    group(['10.0.0.0/24'], [rule({ id: 'web', protocol: 6 }), rule({ id: 'ping', protocol: 1 })], { id: 'lan' }),
    group(['10.0.1.0/24'], [rule({ id: 'web', protocol: 6, mode: 'audit', action: 'deny' })], {
      id: 'wan',
      defaultAction: 'allow',
    }),
  ],
  { action: 'allow' },
);
const web = packet();
const dns = packet({ source: '10.0.1.2', protocol: IPPROTO.udp, destinationPort: 53 });

let kernel: Loaded;
beforeEach(() => {
  kernel = loadForTest();
});
afterEach(() => kernel.close());

const activate = (given: Policy, generation = 1): number => kernel.activate(compile(given), generation);

function back({ source, destination, sourcePort, destinationPort, ...rest }: Packet<number>): Packet<number> {
  return {
    ...rest,
    source: destination,
    destination: source,
    sourcePort: destinationPort,
    destinationPort: sourcePort,
  };
}

async function page(
  filter: Partial<FlowFilter> = {},
  after: Uint8Array | null = null,
  limit = 1_000,
): Promise<FlowPage> {
  return kernel.trafficStatistics.flows({ filter: anyFlow(filter), after, limit }, DEFAULT_TIMEOUTS_MS);
}

const sources = async (filter: Partial<FlowFilter>): Promise<string[]> =>
  (await page(filter)).items.map(({ source, protocol }) => `${formatAddress(source)} ${protocol}`).sort();

function prefix(address: number, length: number): FlowFilter['sources'] {
  return [{ address, length }];
}

describe('a listed flow', () => {
  test('a listed flow has the counts of both directions, the flow state, and the rule that allowed the flow', async () => {
    activate(lan, 7);
    const before = Date.now();
    kernel.runPacket(web, { payloadBytes: 46 });
    kernel.runPacket(back(web), { tcpFlags: TCP.syn | TCP.ack, payloadBytes: 46 });
    kernel.runPacket(web, { tcpFlags: TCP.ack, payloadBytes: 46 });
    const { items, ...rest } = await page();
    expect(rest).toEqual({ matched: 1, next: null });
    const [flow] = items;
    if (flow === undefined) throw new Error('no flow');
    const { key, openedMs, lastSeenMs, expiresInMs } = flow;
    expect(key).toHaveLength(16);
    expect(flow).toEqual({
      ...{ ...LIVE_FLOW, key, openedMs, lastSeenMs, expiresInMs },
      source: web.source,
      destination: web.destination,
      packets: [2n, 1n],
      bytes: [200n, 100n],
      interfaces: ['lo', 'lo'],
    } satisfies LiveFlow);
    // Flow times are ticks of about a millisecond from the coarse clock of the kernel, which is a few
    // milliseconds late. The test allows three seconds.
    for (const time of [openedMs, lastSeenMs]) expect(Math.abs(time - before)).toBeLessThan(3_000);
    expect(Math.abs(lastSeenMs + DEFAULT_TIMEOUTS_MS.tcp_established - (Date.now() + expiresInMs))).toBeLessThan(3_000);
  });

  test('a listed flow of ICMP has an identifier instead of ports, and a default instead of a rule if a default allowed it', async () => {
    activate({ ...lan, groups: [...lan.groups, group(['10.0.0.0/8'], [], { id: 'all' })] });
    kernel.runPacket(icmp(8), { icmpId: 99 });
    kernel.runPacket({ ...icmp(8), source: dns.source });
    kernel.runPacket({ ...icmp(8), source: 0x0a00_0201 });
    const listed = (await page()).items.map(({ ports, icmpId, decider, sourceGroups }) => ({
      ...{ ports, icmpId, decider, sourceGroups },
    }));
    expect(listed).toEqual([
      { ports: null, icmpId: 99, decider: { kind: 'rule', group: 'lan', rule: 'ping' }, sourceGroups: null },
      { ports: null, icmpId: 77, decider: { kind: 'group_default', group: 'wan' }, sourceGroups: null },
      {
        ...{ ports: null, icmpId: 77, decider: { kind: 'policy_default' } },
        sourceGroups: { ids: ['all'], hasSelectors: false },
      },
    ]);
  });

  test('a listed flow keeps the rule name of the previous policy until a packet of the flow is classified again', async () => {
    activate(lan, 1);
    kernel.runPacket(web);
    activate({ ...lan, groups: [] }, 2);
    const listed = async () =>
      (await page()).items.map(({ decider, generation, current }) => ({ decider, generation, current }));
    expect(await listed()).toEqual([
      { decider: { kind: 'rule', group: 'lan', rule: 'web' }, generation: 1, current: false },
    ]);
    kernel.runPacket(web);
    expect(await listed()).toEqual([{ decider: { kind: 'policy_default' }, generation: 2, current: true }]);
  });

  test('a listed flow has no rule name if its policy is no longer in the history of rule names', async () => {
    activate(lan);
    kernel.runPacket(web);
    for (let generation = 2; generation < 20; generation++) activate({ ...lan, groups: [] }, generation);
    const [flow] = (await page()).items;
    expect([flow?.decider, flow?.generation, flow?.current]).toEqual([null, null, false]);
  });
});

test('a flow matches a filter if each field of the filter lists a value that the flow has', async () => {
  activate(lan);
  kernel.runPacket(web);
  kernel.runPacket(packet({ source: '10.0.0.2', destinationPort: 8080 }));
  kernel.runPacket(packet({ source: '10.0.1.1', sourcePort: 443, destinationPort: 22 }));
  kernel.runPacket(dns, { payloadBytes: 120 });
  kernel.runPacket(back(dns));
  kernel.runPacket(icmp(8), { icmpId: 443 });
  const cases: [Partial<FlowFilter>, string[]][] = [
    [{ sources: prefix(0x0a00_0000, 24) }, ['10.0.0.1 1', '10.0.0.1 6', '10.0.0.2 6']],
    [{ sources: [...prefix(0x0a00_0002, 32), ...prefix(0x0a00_0102, 32)] }, ['10.0.0.2 6', '10.0.1.2 17']],
    [{ destinations: prefix(0x0a00_0000, 8) }, []],
    [{ destinations: prefix(0, 0), protocols: [1] }, ['10.0.0.1 1']],
    [{ ports: [{ low: 443, high: 443 }] }, ['10.0.0.1 6', '10.0.1.1 6']],
    [{ sourcePorts: [{ low: 0, high: 443 }] }, ['10.0.1.1 6']],
    [{ destinationPorts: [{ low: 50, high: 443 }] }, ['10.0.0.1 6', '10.0.1.2 17']],
    [{ protocols: [17, 1] }, ['10.0.0.1 1', '10.0.1.2 17']],
    [{ groups: ['wan'] }, ['10.0.1.1 6', '10.0.1.2 17']],
    [{ rules: ['web'] }, ['10.0.0.1 6', '10.0.0.2 6', '10.0.1.1 6']],
    [{ groups: ['lan'], rules: ['web', 'ping'], protocols: [1] }, ['10.0.0.1 1']],
    [{ rules: ['nobody'] }, []],
    [{ verdicts: ['audit'] }, ['10.0.1.1 6']],
    [{ states: ['udp_replied', 'icmp_opened'] }, ['10.0.0.1 1', '10.0.1.2 17']],
    [{ foreign: true }, []],
    [{ current: true, minBytes: 100 }, ['10.0.1.2 17']],
    [{ current: false }, []],
  ];
  for (const [filter, found] of cases) expect([filter, await sources(filter)]).toEqual([filter, found]);
});

test('the pages of the list of live flows contain each flow that stays open exactly once while other flows open and change state', async () => {
  activate(lan);
  const open = (number: number): unknown => kernel.runPacket(packet({ source: '10.0.0.9', sourcePort: number }));
  for (let number = 0; number < 300; number++) open(number * 2);
  const seen: number[] = [];
  let matched = 0;
  for (let after: Uint8Array | null = null, turn = 0; ; turn++) {
    const part: FlowPage = await page({}, after, 7);
    seen.push(...part.items.map(({ ports }) => ports?.[0] ?? -1));
    matched = part.matched;
    after = part.next;
    if (after === null) break;
    // Between two pages, two flows open and one half-open flow becomes established.
    open(1 + 2 * (turn % 300));
    open(601 + turn);
    kernel.runPacket(back(packet({ source: '10.0.0.9', sourcePort: 2 * turn })), { tcpFlags: TCP.syn | TCP.ack });
    kernel.runPacket(packet({ source: '10.0.0.9', sourcePort: 2 * turn }), { tcpFlags: TCP.ack });
  }
  expect(new Set(seen).size).toBe(seen.length);
  expect(seen.filter((port) => port % 2 === 0 && port < 600).sort((a, b) => a - b)).toEqual(
    Array.from({ length: 300 }, (_, number) => number * 2),
  );
  expect(matched).toBeGreaterThan(300);
});

describe('cutting flows', () => {
  test('the cut of a flow removes the flow: its next packet is classified as a new flow, and other flows stay', async () => {
    activate(lan);
    for (const [given, tcpFlags] of [
      [web, TCP.syn],
      [back(web), TCP.syn | TCP.ack],
      [web, TCP.ack],
      [dns, 0],
    ] as const) {
      kernel.runPacket(given, { tcpFlags });
    }
    const cut = { filter: anyFlow({ rules: ['web'] }), after: null, limit: 10 };
    expect(await kernel.trafficStatistics.cutFlows(cut)).toEqual({ cut: 1, next: null });
    expect(await sources({})).toEqual(['10.0.1.2 17']);
    expect(kernel.runPacket(web, { tcpFlags: TCP.ack }).returned).toBe(DROPPED);
    expect(kernel.counted().drop_out_of_state).toBe(1);
    expect(kernel.runPacket(web).returned).toBe(PASSED);
  });

  test('the cut of a flow keeps its packets in the count of the rule that allowed the flow', async () => {
    activate(lan);
    for (let count = 0; count < 4; count++) kernel.runPacket(dns);
    await kernel.trafficStatistics.cutFlows({ filter: anyFlow(), after: null, limit: 10 });
    const query = { groups: ['wan'], rules: [], unused: false, from: 0, limit: 10 };
    expect(kernel.trafficStatistics.hits(query)?.items.map(({ packets }) => packets)).toEqual([4n]);
  });

  test('a request to cut flows continues in batches of at most `limit` flows until no flow matches the filter', async () => {
    activate(lan);
    for (let number = 0; number < 25; number++) kernel.runPacket({ ...dns, sourcePort: number });
    const cuts: number[] = [];
    for (let after: Uint8Array | null = null; ; ) {
      const part = await kernel.trafficStatistics.cutFlows({ filter: anyFlow(), after, limit: 10 });
      cuts.push(part.cut);
      after = part.next;
      if (after === null) break;
    }
    expect(cuts).toEqual([10, 10, 5]);
    expect((await page()).matched).toBe(0);
  });
});

test('the request for a list of flows is rejected with an error if the datapath closes while the list is read', async () => {
  kernel.close();
  kernel = loadForTest({ flowCapacity: 131_072 });
  activate(lan);
  for (let number = 0; number < 131_072; number++)
    kernel.runPacket({ ...dns, source: dns.source + (number >> 16), sourcePort: number & 0xffff });
  const listed = page();
  kernel.close();
  await expect(listed).rejects.toThrow('the datapath was closed while its flows were read');
  kernel = loadForTest();
});

test('the statistics count established flows, half-open flows, fragments and hit entries in the BPF maps', async () => {
  activate(lan);
  kernel.runPacket(web);
  kernel.runPacket(dns);
  kernel.runPacket(back(dns));
  kernel.runPacket(packet({ protocol: 17, source: '10.0.0.77' }), { fragment: 0x2000, payloadBytes: 40 });
  const { flows, maps } = kernel.trafficStatistics.stats();
  expect({ flows, maps }).toEqual({
    flows: 1,
    maps: {
      flows: { entries: 1, capacity: 4_096 },
      half_open: { entries: 2, capacity: 4_096 },
      fragments: { entries: 1, capacity: 4_096 },
      hits: { entries: 5, capacity: 1_023 },
      rank_hits: { entries: 5, capacity: 65_536 },
    },
  });
});

describe('the flows of both IP families', () => {
  const both = policy([group(['0.0.0.0/0', '::/0'], [rule({ id: 'all' })], { id: 'all' })]);
  const SOURCES = ['2001:db8::1', '2001:db8::1:1', '2001:db8:0:1::1', 'fd00::1'];
  let dual: Loaded<'ipv6'>;
  const list = (filter: Partial<FlowFilter> = {}, after: Uint8Array | null = null, limit = 1_000): Promise<FlowPage> =>
    dual.trafficStatistics.flows({ filter: anyFlow(filter), after, limit }, DEFAULT_TIMEOUTS_MS);
  const sourcesOf = ({ items }: FlowPage): string[] => items.map(({ source }) => formatAddress(source)).sort();
  const networks = (...texts: readonly string[]) => texts.map((text) => parseCidr(text)?.prefix as Prefix);

  beforeEach(() => {
    dual = loadForTest({ family: 'ipv6' });
    dual.activate(compile(both, { ipv6: true }));
    for (const source of SOURCES) dual.runPacket(ipv6Packet({ source, protocol: 6 }) as Packet<bigint>);
    for (const host of [1, 2, 3]) dual.runFrame(writeFrame(dual.frame, packet({ source: `10.0.0.${host}` })));
  });
  afterEach(() => dual.close());

  test('a list of flows contains the flows of both IP families, those of IPv4 first, on pages of any size', async () => {
    const all = await list();
    expect([all.matched, all.next]).toEqual([7, null]);
    expect(all.items.map(({ source }) => typeof source)).toEqual([
      ...new Array<string>(3).fill('number'),
      ...new Array<string>(4).fill('bigint'),
    ]);
    for (const limit of [1, 2, 3, 4, 6, 7]) {
      const pages: FlowPage[] = [];
      for (let after: Uint8Array | null = null; pages.length === 0 || after !== null; ) {
        const page = await list({}, after, limit);
        pages.push(page);
        after = page.next;
      }
      expect(pages.flatMap(({ items }) => items.map(({ key }) => [...key]))).toEqual(
        all.items.map(({ key }) => [...key]),
      );
      expect(pages.map(({ matched }) => matched)).toEqual(pages.map(() => 7));
      expect(pages).toHaveLength(Math.ceil(7 / limit));
    }
  });

  test.each<[sources: string[], found: string[]]>([
    [['2001:db8::/64'], ['2001:db8::1', '2001:db8::1:1']],
    [['2001:db8::/112'], ['2001:db8::1']],
    [
      ['2001:db8:0:1::/64', '10.0.0.2/31'],
      ['10.0.0.2', '10.0.0.3', '2001:db8:0:1::1'],
    ],
    [['2001:db8::1/128'], ['2001:db8::1']],
    [['fd00::/8'], ['fd00::1']],
    [['::/0'], SOURCES],
    [['0.0.0.0/0'], ['10.0.0.1', '10.0.0.2', '10.0.0.3']],
    [['2001:db8:1::/48'], []],
  ])('a filter with the sources %j finds the flows of %j', async (sources, found) => {
    const page = await list({ sources: networks(...sources) });
    expect([sourcesOf(page), page.matched]).toEqual([found.toSorted(), found.length]);
  });

  test('a request that ends flows (cut) applies to the IP family that the filter selects, and a listed IPv6 flow has the rule that decided it', async () => {
    const [flow] = (await list({ sources: networks('fd00::/8') })).items;
    expect(flow).toMatchObject({
      ...{ protocol: 6, ports: [40_000, 443], state: 'tcp_syn_sent', verdict: 'allow', foreign: false, current: true },
      decider: { kind: 'rule', group: 'all', rule: 'all' },
      packets: [1n, 0n],
    });
    const cut = await dual.trafficStatistics.cutFlows({
      filter: anyFlow({ sources: networks('2001:db8::/32') }),
      after: null,
      limit: 10,
    });
    expect(cut).toEqual({ cut: 3, next: null });
    expect(sourcesOf(await list())).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.3', 'fd00::1']);
    const { maps, halfOpen } = dual.trafficStatistics.stats();
    expect([halfOpen, maps.half_open?.entries, maps.half_open_ipv6?.entries]).toEqual([4, 3, 1]);
  });

  test('the hits of a rule count the packets of both IP families', () => {
    const hits = dual.trafficStatistics.hits({ groups: [], rules: ['all'], unused: undefined, from: 0, limit: 10 });
    expect(hits?.items.map(({ packets }) => packets)).toEqual([7n]);
  });
});
