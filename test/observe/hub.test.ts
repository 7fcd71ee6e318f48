import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import type { SeenLookup } from '#contracts/dns/seen-lookup.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { EVENT_FLAG } from '#dataplane/events/event.js';
import { Surroundings } from '#dataplane/events/surroundings.js';
import { AddressNames } from '#observe/names/address-names.js';
import { AddressOwners } from '#observe/names/address-owners.js';
import { RuleNameResolver } from '#observe/names/rule-name-resolver.js';
import type { Frame } from '#observe/wiretap/frame.js';
import { WiretapHub } from '#observe/wiretap/hub.js';
import type { WiretapFilter } from '#observe/wiretap/wiretap-filter.js';
import { ruleNamesOf, ruleNamesOfRecord } from '#policy/model/rules/rule-names.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { request, seenConnection } from './connections.js';
import { batchOf, type EventInput } from './events.js';
import { CONNECTION_FIELDS, FLOW_MESSAGE, LOOKUP_FIELDS } from './flow-message.js';
import { ownersSince, pod } from './owners.js';

const ALL: WiretapFilter = {
  sources: [],
  destinations: [],
  ports: [],
  protocols: [],
  hostnames: [],
  groups: [],
  rules: [],
  verdicts: [],
  types: [],
};
const record = { id: '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10', revision: 1 };
const ruleNames = ruleNamesOfRecord(
  ruleNamesOf(policy([group(['10.0.0.0/8'], [rule({ id: 'web' })], { id: 'lan' })])),
  record,
);
/**
 * The hit counter of each rank: the rule at rank 0 has counter 5, and the default at rank 1 has counter 6.
 */
const entries = Uint32Array.from([5, 6]);
const checkOf = (rank: number): number => ruleNames.identities[2 * rank] as number;

let names: AddressNames;
let owners: AddressOwners;
let surroundings: Surroundings;
let given: (Frame | { readonly reader: number; readonly subscribed: number })[];
beforeEach(() => {
  names = new AddressNames();
  owners = new AddressOwners();
  surroundings = new Surroundings();
  surroundings.learn({ kind: 'rule_names', placed: { ruleNames, generation: 7, entries, epoch: 3 } });
  surroundings.learn({ kind: 'interfaces', names: new Map([[0, 'lan0']]) });
  given = [];
});
function hubKeeping(replayMs: number): WiretapHub {
  const known = { ruleNameResolver: new RuleNameResolver(surroundings.ruleNameHistory), names, owners, surroundings };
  const output = {
    frame: (frame: Frame) => void given.push(frame),
    subscribed: (reader: number, channel: number) => void given.push({ reader, subscribed: channel }),
    refused: (reader: number) => void given.push({ reader, subscribed: 0 }),
  };
  return new WiretapHub(known, output, replayMs);
}
const messages = (): Record<string, unknown>[] =>
  given.flatMap((one) =>
    'bytes' in one && one.bytes.length > 0 ? [JSON.parse(new TextDecoder().decode(one.bytes))].flat() : [],
  );
const ports = () => messages().map(({ dst_port: port }) => port);

const flow = (destinationPort: number, more: Partial<EventInput> = {}): EventInput => ({
  type: 'flow_opened',
  source: address('10.0.0.7'),
  destination: address('192.0.2.1'),
  sourcePort: 40_000,
  destinationPort,
  epoch: 3,
  hit: 5,
  hitCheck: checkOf(0),
  state: 1,
  ...more,
});
/** Sends events until more than 32 MiB of frames are unwritten. Returns the number of their bytes. */
function fill(hub: WiretapHub): number {
  const many = batchOf(Array.from({ length: 8_192 }, () => flow(1)));
  let bytes = 0;
  while (bytes <= 32 * 1024 * 1024) {
    given = [];
    hub.events(many, 0);
    bytes += given.reduce((sum, one) => sum + ('bytes' in one ? one.bytes.length : 0), 0);
  }
  return bytes;
}
const lookup = (hostname: string, more: Partial<SeenLookup> = {}): SeenLookup => ({
  source: address('10.0.0.7'),
  hostname,
  type: 1,
  generation: 7,
  word: verdictWord(0, 'allow', false),
  count: 2,
  lastMs: 1_000,
  ...more,
});

describe('a wiretap message', () => {
  test('a wiretap message has the Kubernetes owners that the addresses had at its time, or at the start of an ended flow, also in a replay', () => {
    const [source, destination] = [address('10.0.0.7'), address('192.0.2.1')];
    const hub = hubKeeping(60_000);
    owners.change(ownersSince(0, { [source]: 'old', [destination]: 'api' }));
    hub.events(batchOf([flow(443)], { unixMs: 500 }), 500);
    hub.connections({ connections: [seenConnection({ atMs: 500 })], lost: 0, lostDenied: 0 }, 500);
    owners.change(ownersSince(1_000, { [source]: 'new', [destination]: null }));
    hub.events(batchOf([flow(444)], { unixMs: 1_500 }), 1_500);
    hub.events(batchOf([flow(443, { type: 'flow_ended', timeNs: 1_000_000_000n })], { unixMs: 500 }), 1_500);
    hub.lookups(
      { lookups: [lookup('a.test', { lastMs: 1_500 })], rebindings: [], named: [], lost: 0, lostDenied: 0 },
      1_500,
    );
    hub.open(1, ALL, 0);
    for (const _ of [1, 2, 3, 4, 5]) hub.more(1);
    expect(messages().map(({ type, src_owner, dst_owner }) => [type, src_owner, dst_owner])).toEqual([
      ['flow', pod('old'), pod('api')],
      ['tls', pod('old'), pod('api')],
      ['flow', pod('new'), null],
      ['flow_end', pod('old'), pod('api')],
      ['dns', pod('new'), undefined],
    ]);
  });

  test('a wiretap message has no fields for owners if none of its addresses has an owner', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    owners.change(ownersSince(0, { [address('10.0.0.99')]: 'other' }));
    hub.events(batchOf([flow(443)], { unixMs: 500 }), 500);
    hub.connections({ connections: [seenConnection()], lost: 0, lostDenied: 0 }, 500);
    hub.lookups({ lookups: [lookup('a.test')], rebindings: [], named: [], lost: 0, lostDenied: 0 }, 500);
    expect(messages().map((message) => 'src_owner' in message || 'dst_owner' in message)).toEqual([
      false,
      false,
      false,
    ]);
  });

  test('a wiretap message of a lookup has the IPv6 address of the client, and a filter of sources selects it by its network', () => {
    const hub = hubKeeping(0);
    hub.open(1, { ...ALL, sources: [{ address: 0x2001_0db8n << 96n, length: 32 }] }, 0);
    const lookups = [0x2001_0db8n << 96n, 0x2001_0db9n << 96n, 0x2001_0db8].map((source) =>
      lookup('a.test', { source }),
    );
    hub.lookups({ lookups, rebindings: [], named: [], lost: 0, lostDenied: 0 }, 500);
    expect(messages()).toMatchObject([{ type: 'dns', src: '2001:db8::', hostname: 'a.test' }]);
  });

  test('a wiretap message of a flow has the addresses, the ports, the rule, and the learned names of the addresses', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    names.add(address('192.0.2.1'), 'old.example.com');
    names.add(address('192.0.2.1'), 'www.example.com');
    hub.events(batchOf([flow(443)], { unixMs: Date.parse('2026-01-31T12:00:00.123Z') }), 0);
    expect(messages()).toEqual([
      {
        ...FLOW_MESSAGE,
        dst_names: ['www.example.com', 'old.example.com'],
        policy_id: record.id,
        translation: null,
      },
    ]);
  });

  test('a wiretap message of a flow and of a packet has the destination before DNAT', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    const wire = { address: address('198.51.100.1'), port: 80 };
    const ping = { type: 'denied', protocol: IPPROTO.icmp, wire: { ...wire, port: 0 } } as const;
    hub.events(batchOf([flow(443, { wire }), flow(443, { wire, type: 'denied' }), flow(0, ping), flow(1)]), 0);
    expect(messages().map(({ type, translation }) => [type, translation])).toEqual([
      ['flow', { dst: '198.51.100.1', dst_port: 80 }],
      ['verdict', { dst: '198.51.100.1', dst_port: 80 }],
      ['verdict', { dst: '198.51.100.1', dst_port: null }],
      ['flow', null],
    ]);
  });

  test('a wiretap message of an ended flow has the reason of the end', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    const ends = [
      {},
      { flags: EVENT_FLAG.cut },
      { verdict: 'deny', dropReason: DROP_REASON.policy_deny, hit: 6, hitCheck: checkOf(1) },
    ] as const;
    hub.events(batchOf(ends.map((end) => flow(443, { type: 'flow_ended', ...end }))), 0);
    expect(messages()).toMatchObject([
      { type: 'flow_end', reason: null, verdict: 'allow', effective_action: 'allow', rule: 'web' },
      { type: 'flow_end', reason: 'cut', verdict: 'allow', effective_action: 'allow', rule: 'web' },
      { type: 'flow_end', reason: 'policy_deny', verdict: 'deny', effective_action: 'deny', rule: null },
    ]);
  });

  test('a wiretap message of a packet dropped as out_of_state has the rule of the flow, and matches the filter "deny"', () => {
    const hub = hubKeeping(0);
    hub.open(1, { ...ALL, verdicts: ['deny'] }, 0);
    hub.events(batchOf([flow(443, { type: 'dropped', dropReason: DROP_REASON.out_of_state })]), 0);
    expect(messages()).toMatchObject([
      { type: 'verdict', verdict: 'allow', effective_action: 'deny', drop_reason: 'out_of_state', rule: 'web' },
    ]);
  });

  test('a wiretap message of a dropped ICMP packet has the ICMP type and code, and no rule', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    hub.events(batchOf([{ type: 'dropped', verdict: null, dropReason: 16, protocol: IPPROTO.icmp, icmp: [5, 1] }]), 0);
    expect(messages()).toMatchObject([
      {
        type: 'verdict',
        src_port: null,
        dst_port: null,
        proto: 1,
        verdict: null,
        effective_action: 'deny',
        source_group: null,
        rule: null,
        decided_by: null,
        policy_id: null,
        generation: null,
        drop_reason: 'icmp_redirect',
        icmp_type: 5,
        icmp_code: 1,
        tcp_flags: null,
      },
    ]);
  });

  test('a wiretap message of a dropped IPv6 packet has the IPv6 addresses, and matches no IPv4 prefix filter', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    hub.open(2, { ...ALL, sources: [{ address: 0, length: 0 }] }, 0);
    const end = (last: bigint): bigint => (0xfd77n << 112n) | last;
    const ends = { source: end(1n), destination: end(2n) };
    hub.events(batchOf([{ type: 'dropped', verdict: null, dropReason: DROP_REASON.ipv6, ...ends }]), 0);
    expect(messages()).toMatchObject([{ type: 'verdict', src: 'fd77::1', dst: 'fd77::2', drop_reason: 'ipv6' }]);
  });

  test('a wiretap message of a DNS query has the rule and the generation of the policy that decided the query', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    hub.lookups({ lookups: [lookup('www.example.com')], rebindings: [], named: [], lost: 0, lostDenied: 0 }, 0);
    expect(messages()).toEqual([
      {
        ...LOOKUP_FIELDS,
        time: '1970-01-01T00:00:01.000Z',
        hostname: 'www.example.com',
        policy_id: record.id,
        count: 2,
      },
    ]);
  });
});

describe('a wiretap message of an inspected connection or request', () => {
  const common = {
    ...CONNECTION_FIELDS,
    time: '1970-01-01T00:00:01.000Z',
    dst_names: ['cdn.example.net'],
    policy_id: record.id,
    interface: null,
    sni: 'www.example.com',
  };
  const decider = { kind: 'rule', group: 'lan', rule: 'web' } as const;

  test('a wiretap message of an inspected connection or request has hostname, rule and reason, and JSON escapes for text from the client', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    names.add(address('192.0.2.1'), 'cdn.example.net');
    const connections = [
      seenConnection({ decider, reason: 'no_ca' }),
      request('/a"b\\c', { decider, verdict: 'audit' }),
      request('/', { decider, verdict: 'allow' }),
      seenConnection({ decider: null, sni: null, generation: 99 }),
    ];
    hub.connections({ connections, lost: 0, lostDenied: 0 }, 0);
    const nobody = { source_group: null, rule: null, decided_by: null, policy_id: null, generation: 99, sni: null };
    const denied = { type: 'tls', verdict: 'deny', effective_action: 'deny' };
    const passed = { type: 'http', effective_action: 'allow', reason: null };
    expect(messages()).toEqual([
      { ...common, ...denied, reason: 'no_ca' },
      { ...common, ...passed, verdict: 'audit', http: { method: 'GET', host: 'www.example.com', path: '/a"b\\c' } },
      { ...common, ...passed, verdict: 'allow', http: { method: 'GET', host: 'www.example.com', path: '/' } },
      { ...common, ...denied, ...nobody, reason: null },
    ]);
  });

  test('a wiretap message keeps text from the client that has more bytes than characters, in a batch that outgrows the first buffer', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    const paths = Array.from({ length: 300 }, (_, index) => `/${index}/${'ä€😀'.repeat(100)}`);
    hub.connections({ connections: paths.map((path) => request(path)), lost: 0, lostDenied: 0 }, 0);
    expect(messages().map(({ http }) => (http as { path: string }).path)).toEqual(paths);
  });

  const seen = (filter: Partial<WiretapFilter>): unknown[] => {
    const hub = hubKeeping(0);
    names.add(address('192.0.2.9'), 'granted.example.net');
    hub.open(1, { ...ALL, ...filter }, 0);
    const named = (sni: string, of = {}) => seenConnection({ sni, ...of });
    hub.connections(
      {
        connections: [
          named('a.example.com', { source: address('172.16.0.1'), verdict: 'allow' }),
          named('b.example.com', { destination: address('192.0.2.9'), destinationPort: 8_443, verdict: 'audit' }),
          named('c.example.com', { decider: { kind: 'group_default', group: 'lan' } }),
          request('/d', { sni: 'd.example.org' }),
        ],
        lost: 0,
        lostDenied: 0,
      },
      0,
    );
    const found = messages().map(({ sni }) => String(sni)[0]);
    given = [];
    return found;
  };
  const prefix = (text: string, length = 32) => ({ address: address(text), length });

  test.each<[string, Partial<WiretapFilter>, string]>([
    ['no field', {}, 'abcd'],
    ['the type tls', { types: ['tls'] }, 'abc'],
    ['the types http and flow', { types: ['http', 'flow'] }, 'd'],
    ['the types dns and verdict', { types: ['dns', 'verdict'] }, ''],
    ['source', { sources: [prefix('172.16.0.0', 12)] }, 'a'],
    ['destination', { destinations: [prefix('192.0.2.9')] }, 'b'],
    ['server port', { ports: [{ low: 8_000, high: 9_000 }] }, 'b'],
    ['client port', { ports: [{ low: 40_000, high: 40_000 }] }, 'abcd'],
    ['protocol TCP', { protocols: [17, 6] }, 'abcd'],
    ['protocol UDP', { protocols: [17] }, ''],
    ['name in the ClientHello', { hostnames: ['a.example.com'] }, 'a'],
    ['host of a request', { hostnames: ['www.example.com'] }, 'd'],
    ['name for which the address was granted', { hostnames: ['*.example.net'] }, 'b'],
    ['group and verdict', { groups: ['lan'], verdicts: ['deny'] }, 'cd'],
    ['rule', { rules: ['no'] }, 'abd'],
    ['verdict', { verdicts: ['allow', 'audit'] }, 'ab'],
  ])(
    'a wiretap message of an inspected connection or request matches the filter of a wiretap reader (filter by %s)',
    (_, filter, expected) => {
      expect(seen(filter).join('')).toBe(expected);
    },
  );

  test('the wiretap hub keeps a message of an inspected request for replay, and sends a replay reader the loss counts of the service plane', () => {
    const hub = hubKeeping(10_000);
    hub.connections({ connections: [request('/kept')], lost: 3, lostDenied: 0 }, 1_000);
    hub.events(batchOf([flow(443)]), 1_500);
    hub.open(9, { ...ALL, types: ['http'] }, 0);
    hub.more(9);
    expect(given).toMatchObject([
      { to: { reader: 9 }, messages: 1, lost: { service_plane: 3 } },
      { reader: 9, subscribed: 1 },
    ]);
    expect(messages()).toMatchObject([{ type: 'http', http: { path: '/kept' } }]);
    hub.open(10, { ...ALL, types: ['dns'] }, 5_000);
    given = [];
    hub.connections({ connections: [], lost: 4, lostDenied: 4 }, 2_000);
    expect(given).toMatchObject([{ to: { channel: 1 }, messages: 0, lost: { service_plane: 4 } }]);
  });

  test('the wiretap hub requests allowed connections only if the filter of a reader can match an allowed connection', () => {
    const hub = hubKeeping(10_000);
    hub.open(1, { ...ALL, types: ['tls'], verdicts: ['deny'] }, 0);
    hub.open(2, { ...ALL, protocols: [17] }, 0);
    expect(hub.wantsConnections).toBe(false);
    hub.open(3, { ...ALL, types: ['tls'] }, 0);
    expect(hub.wantsConnections).toBe(true);
    hub.close(3);
    expect(hub.wantsConnections).toBe(false);
  });
});

describe('a wiretap filter', () => {
  const seen = (filter: Partial<WiretapFilter>): unknown[] => {
    const hub = hubKeeping(0);
    names.add(address('192.0.2.1'), 'www.example.com');
    hub.open(1, { ...ALL, ...filter }, 0);
    hub.events(
      batchOf([
        flow(443),
        flow(80, { type: 'flow_ended', hit: 6, hitCheck: checkOf(1) }),
        flow(53, { type: 'denied', verdict: 'deny', protocol: 17, destination: address('198.51.100.1') }),
        flow(25, { type: 'dropped', verdict: null, source: address('172.16.0.1') }),
        flow(7, { type: 'flow_opened', verdict: 'audit', protocol: IPPROTO.icmp }),
        // The flow to port 9 has no verdict, because the datapath evaluated no rule for the flow.
        flow(9, { verdict: null, protocol: 132, destination: address('198.51.100.9'), hit: 0 }),
      ]),
      0,
    );
    hub.lookups(
      {
        lookups: [lookup('www.example.com'), lookup('other.example.org')],
        rebindings: [],
        named: [],
        lost: 0,
        lostDenied: 0,
      },
      0,
    );
    const found = messages().map(
      ({ type, proto, dst_port: port, hostname }) => hostname ?? port ?? [type, proto].join(' '),
    );
    given = [];
    return found;
  };
  const prefix = (text: string, length = 32) => ({ address: address(text), length });

  test.each<[string, Partial<WiretapFilter>, unknown[]]>([
    ['no field', {}, [443, 80, 53, 25, 'flow 1', 9, 'www.example.com', 'other.example.org']],
    ['type', { types: ['flow_end', 'dns'] }, [80, 'www.example.com', 'other.example.org']],
    ['source', { sources: [prefix('172.16.0.0', 12)] }, [25]],
    ['every source', { sources: [prefix('0.0.0.0', 0)], types: ['verdict'] }, [53, 25]],
    ['destination', { destinations: [prefix('198.51.100.1')] }, [53]],
    ['port of either side, for protocols with ports', { ports: [{ low: 40_000, high: 40_000 }] }, [443, 80, 53, 25, 9]],
    ['protocol', { protocols: [17, 1] }, [53, 'flow 1']],
    ['verdict, where dropped packets count as denied', { verdicts: ['deny'] }, [53, 25]],
    ['verdict audit', { verdicts: ['audit'] }, ['flow 1']],
    ['verdict allow, with and without a rule', { verdicts: ['allow'], types: ['flow_end', 'flow'] }, [443, 80, 9]],
    ['rule', { rules: ['web'], types: ['flow', 'flow_end'] }, [443, 'flow 1']],
    ['group', { groups: ['lan'], types: ['dns'] }, ['www.example.com', 'other.example.org']],
    ['name', { hostnames: ['www.example.com'], types: ['flow', 'dns'] }, [443, 'flow 1', 'www.example.com']],
    ['suffix of a name', { hostnames: ['*.example.org'] }, ['other.example.org']],
    ['two fields at once', { protocols: [6], verdicts: ['allow'] }, [443, 80]],
  ])('a wiretap filter selects messages by their fields (filter by %s)', (_, filter, expected) => {
    expect(seen(filter)).toEqual(expected);
  });

  test('the wiretap hub refuses a reader with a new filter if it already has 128 different filters', () => {
    const hub = hubKeeping(0);
    for (let reader = 1; reader <= 129; reader++)
      hub.open(reader, { ...ALL, ports: [{ low: reader, high: reader }] }, 0);
    hub.open(130, { ...ALL, ports: [{ low: 1, high: 1 }] }, 0);
    expect([given.at(-2), given.at(-1), hub.readers]).toEqual([
      { reader: 129, subscribed: 0 },
      { reader: 130, subscribed: 1 },
      129,
    ]);
  });

  test('the wiretap hub makes each frame only once for two readers with equal filters', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    hub.open(2, { ...ALL }, 0);
    hub.open(3, { ...ALL, protocols: [17] }, 0);
    hub.events(batchOf([flow(443)]), 0);
    expect(given).toMatchObject([
      { reader: 1, subscribed: 1 },
      { reader: 2, subscribed: 1 },
      { reader: 3, subscribed: 2 },
      { to: { channel: 1 }, messages: 1 },
    ]);
    expect([hub.readers, hub.wantsFlows, hub.wantsLookups]).toEqual([3, true, true]);
    for (const reader of [1, 2, 3, 3]) hub.close(reader);
    expect([hub.readers, hub.wantsFlows, hub.wantsLookups]).toEqual([0, false, false]);
  });
});

describe('the replay for a new wiretap reader', () => {
  test('the replay for a new wiretap reader comes before live frames, at the speed of the reader, and every message arrives exactly once', () => {
    const hub = hubKeeping(10_000);
    hub.events(batchOf([flow(1)]), 1_000);
    hub.events(batchOf(Array.from({ length: 600 }, (_, index) => flow(1_000 + index))), 5_000);
    hub.open(9, ALL, 4_000);
    expect(ports()).toEqual(Array.from({ length: 512 }, (_, index) => 1_000 + index));
    // The event of port 2 arrives during the replay, before the reader subscribes to the live channel.
    hub.events(batchOf([flow(2)]), 6_000);
    hub.more(9);
    hub.events(batchOf([flow(3)]), 7_000);
    hub.more(9);
    hub.more(9);
    hub.events(batchOf([flow(4)]), 8_000);
    const to = (one: (typeof given)[number]) => ('bytes' in one ? Object.keys(one.to)[0] : 'subscribed');
    expect(given.map(to)).toEqual([
      'reader',
      'channel',
      'reader',
      'channel',
      'reader',
      'reader',
      'subscribed',
      'channel',
    ]);
    given = given.filter(
      (one, at) => to(one) === 'reader' || at > given.findIndex((other) => to(other) === 'subscribed'),
    );
    const kept = Array.from({ length: 600 }, (_, index) => 1_000 + index);
    expect(ports()).toEqual([...kept, 2, 3, 4]);
  });

  test('the wiretap hub drops replay messages older than the replay time, and reports the number of dropped messages to a slow reader', () => {
    const hub = hubKeeping(1_000);
    hub.events(batchOf(Array.from({ length: 600 }, () => flow(1))), 1_000);
    hub.events(batchOf([flow(2), flow(2)], { lost: 3 }), 1_500);
    hub.open(9, ALL, 0);
    given = [];
    hub.events(batchOf([flow(3)], { lost: 4 }), 3_000);
    given = [];
    hub.more(9);
    expect(given).toMatchObject([
      { to: { reader: 9 }, messages: 1, lost: { reader: 602 - 512, kernel: 3 + 4 } },
      { reader: 9, subscribed: 1 },
    ]);
    expect(ports()).toEqual([3]);
  });
});

describe('lost wiretap events', () => {
  test('wiretap readers learn how many events were lost in the ring buffer or exceeded the event limit of a source, whatever their filter', () => {
    const hub = hubKeeping(0);
    hub.open(1, { ...ALL, protocols: [17] }, 0);
    given = [];
    hub.events(batchOf([flow(1, { suppressed: 3 }), flow(2, { suppressed: 4 })], { lost: 5 }), 0);
    expect(given).toMatchObject([{ messages: 0, lost: { reader: 0, kernel: 5, source_share: 7 } }]);
  });

  test('lost wiretap events are counted while more than 32 MiB of frames are unwritten, and reported when the frames are written', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    const bytes = fill(hub);
    given = [];
    hub.events(batchOf([flow(1), flow(2)]), 0);
    expect(given).toEqual([]);
    hub.written(bytes);
    expect(given).toMatchObject([{ messages: 0, lost: { reader: 2 } }]);
  });
});

describe('a wiretap reader that folds messages', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });
  const counts = () => messages().map(({ dst_port: port, count }) => [port, count]);

  test('a wiretap reader that folds messages receives one message for equal events within the time, and other readers each event at once', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0, 250);
    hub.open(2, ALL, 0);
    given = [];
    hub.events(batchOf([flow(443), flow(443), flow(80)]), 0);
    expect(given).toMatchObject([{ to: { channel: 2 }, messages: 3 }]);
    vi.advanceTimersByTime(200);
    hub.events(batchOf([flow(443, { sourcePort: 7 })]), 200);
    given = [];
    vi.advanceTimersByTime(49);
    expect(given).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(given).toMatchObject([{ to: { channel: 1 }, messages: 4 }]);
    expect(messages()[0]).toEqual({
      ...FLOW_MESSAGE,
      dst_names: [],
      time: expect.any(String) as string,
      src_port: 7,
      policy_id: record.id,
      translation: null,
      count: 3,
      first_seen: '1970-01-01T00:00:00.000Z',
    });
    expect(counts()).toEqual([
      [443, 3],
      [80, 1],
    ]);
    // 4 events to the reader without a fold, and 2 messages to the other.
    expect(hub.messages).toBe(6);
    hub.close(2);
    given = [];
    hub.events(batchOf([flow(443)]), 300);
    vi.advanceTimersByTime(250);
    expect(counts()).toEqual([[443, 1]]);
  });

  test('a wiretap reader that folds messages starts no timer without messages, and leaves none when it closes', () => {
    const hub = hubKeeping(0);
    hub.open(1, { ...ALL, protocols: [17] }, 0, 250);
    hub.events(batchOf([flow(443)]), 0);
    expect(vi.getTimerCount()).toBe(0);
    hub.open(2, ALL, 0, 250);
    hub.events(batchOf([flow(443)]), 0);
    expect(vi.getTimerCount()).toBe(1);
    hub.close(2);
    expect(vi.getTimerCount()).toBe(0);
  });

  test('a wiretap reader that folds messages receives the folded messages before its interval ends if more than 4,096 are different', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0, 10_000);
    given = [];
    hub.events(batchOf(Array.from({ length: 4_097 }, (_, port) => flow(port))), 0);
    expect(ports()).toHaveLength(4_096);
    vi.advanceTimersByTime(10_000);
    expect(ports()).toEqual(Array.from({ length: 4_097 }, (_, port) => port));
  });

  test('a wiretap reader that folds messages learns at once how many events were lost', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0, 10_000);
    given = [];
    hub.events(batchOf([flow(1)], { lost: 5 }), 0);
    expect(given).toMatchObject([{ messages: 0, lost: { kernel: 5 } }]);
  });

  test('a wiretap reader that folds messages learns how many messages were folded into those that were dropped', () => {
    const hub = hubKeeping(0);
    hub.open(1, ALL, 0);
    hub.open(2, ALL, 0, 250);
    const bytes = fill(hub);
    hub.close(1);
    vi.advanceTimersByTime(250);
    given = [];
    hub.events(batchOf([flow(1), flow(1), flow(1), flow(2)]), 0);
    vi.advanceTimersByTime(250);
    expect(given).toEqual([]);
    hub.written(bytes);
    const [lost] = given;
    expect([given.length, lost !== undefined && 'lost' in lost && lost.lost.reader % 8_192]).toEqual([1, 4]);
  });

  test('a wiretap reader that folds messages also gets equal messages of the replay buffer as one message, and every event is counted exactly once', () => {
    const hub = hubKeeping(10_000);
    hub.events(batchOf(Array.from({ length: 600 }, () => flow(1))), 1_000);
    hub.open(8, ALL, 20_000, 250);
    hub.events(batchOf([flow(2), flow(2)]), 2_000);
    given = [];
    hub.open(9, ALL, 0, 250);
    for (const _ of [1, 2]) hub.more(9);
    hub.events(batchOf([flow(3)]), 3_000);
    vi.advanceTimersByTime(250);
    const to = (one: (typeof given)[number]) => ('bytes' in one ? Object.keys(one.to)[0] : 'subscribed');
    expect(given.map(to)).toEqual(['reader', 'reader', 'reader', 'channel', 'subscribed', 'channel']);
    const ofFirst = given.filter((one) => to(one) === 'channel');
    given = given.filter((one, at) => to(one) === 'reader' || at > 4);
    expect(counts()).toEqual([
      [1, 512],
      [1, 88],
      [2, 2],
      [3, 1],
    ]);
    given = ofFirst;
    expect(counts()).toEqual([
      [2, 2],
      [3, 1],
    ]);
  });
});
