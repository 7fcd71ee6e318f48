import { beforeEach, expect, test } from 'vitest';
import { DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { RuleNameHistory } from '#dataplane/events/rule-name-history.js';
import { DeniedEvents, findingsOfLookups, findingsOfRebindings } from '#observe/denials/denied-events.js';
import { emptyIdentity } from '#observe/findings/empty-identity.js';
import type { FindingDelta } from '#observe/findings/finding.js';
import { findingId } from '#observe/findings/store/finding-id.js';
import { AddressOwners } from '#observe/names/address-owners.js';
import { RuleNameResolver } from '#observe/names/rule-name-resolver.js';
import { ruleNamesOf } from '#policy/model/rules/rule-names.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { DENIED_FINDING } from './denied-finding.js';
import { batchOf, type EventInput } from './events.js';
import { ownersSince, pod } from './owners.js';

const ruleNames = ruleNamesOf(policy([group(['10.0.0.0/8'], [rule({ id: 'no' })], { id: 'lan' })]));
let ruleNameResolver: RuleNameResolver;
let denied: DeniedEvents;
let owners: AddressOwners;
beforeEach(() => {
  const ruleNameHistory = new RuleNameHistory();
  ruleNameHistory.place({ ruleNames, generation: 7, entries: Uint32Array.from([5, 6]), epoch: 3 });
  ruleNameResolver = new RuleNameResolver(ruleNameHistory);
  owners = new AddressOwners();
  denied = new DeniedEvents(ruleNameResolver, owners);
});
const deny = (more: Partial<EventInput> = {}): EventInput => ({
  type: 'denied',
  verdict: 'deny',
  dropReason: 7,
  source: address('10.0.0.7'),
  destination: address('192.0.2.1'),
  destinationPort: 443,
  epoch: 3,
  hit: 5,
  hitCheck: ruleNames.identities[0] as number,
  ...more,
});
const finding = {
  ...DENIED_FINDING,
  type: 'l4_deny',
  dropReason: 'policy_deny',
};

test('`DeniedEvents` merges equal denied packets into one finding, with the first and last time', () => {
  denied.add(batchOf([deny({ sourcePort: 1 }), deny({ sourcePort: 2 })], { unixMs: 1_000.4 }), 0);
  denied.add(batchOf([deny()], { unixMs: 5_000.9 }), 0);
  expect(denied.drain()).toEqual([{ ...finding, firstMs: 1_000, lastMs: 5_000, count: 3 }]);
  expect([denied.drain(), denied.merged]).toEqual([[], 3]);
});

test.each<[string, Partial<EventInput>, object]>([
  [
    'dropped without a verdict',
    { type: 'dropped', verdict: null, dropReason: 5, epoch: 0, hit: 0 },
    { ...emptyIdentity, dropReason: 'spoofed_source', generation: null },
  ],
  [
    'passed in audit mode',
    { type: 'passed', verdict: 'audit', dropReason: 0 },
    { dropReason: null, effectiveAction: 'allow' },
  ],
  [
    'the first of a flow in audit mode',
    { type: 'flow_opened', verdict: 'audit', dropReason: 0 },
    { dropReason: null, effectiveAction: 'allow' },
  ],
  [
    'passed without inspection in audit mode',
    { type: 'flow_opened', verdict: 'redirect', dropReason: 0 },
    { dropReason: null, effectiveAction: 'allow' },
  ],
])('`DeniedEvents` makes a finding of a packet that was %s', (_, event, expected) => {
  denied.add(batchOf([deny(event)], { unixMs: 1 }), 0);
  const { source, destination, destinationPort, protocol } = finding;
  expect(denied.drain()).toEqual([
    { ...finding, ...expected, source, destination, destinationPort, protocol, firstMs: 1, lastMs: 1, count: 1 },
  ]);
});

test('`DeniedEvents` records ICMP type and code of a packet, and type 8 (echo request) for an ICMP flow', () => {
  denied.add(
    batchOf([
      deny({ protocol: IPPROTO.icmp, icmp: [3, 4] }),
      deny({ protocol: IPPROTO.icmp, type: 'flow_opened', verdict: 'audit' }),
    ]),
    0,
  );
  expect(
    denied.drain().map(({ type, icmpType, icmpCode, destinationPort }) => [type, icmpType, icmpCode, destinationPort]),
  ).toEqual([
    ['icmp_deny', 3, 4, null],
    ['icmp_deny', 8, 0, null],
  ]);
});

test('`DeniedEvents` records the addresses of dropped IPv6 packets, and makes one finding for each pair of addresses', () => {
  const from = (last: number): EventInput => ({
    ...{ type: 'dropped', verdict: null, dropReason: DROP_REASON.ipv6, destinationPort: 443 },
    source: (0xfd77n << 112n) + BigInt(last),
    destination: 0x2001_0db8n << 96n,
  });
  denied.add(batchOf([from(1), from(2), from(1)]), 0);
  const dropped = { type: 'l4_deny', destination: '2001:db8::', destinationPort: 443, dropReason: 'ipv6' };
  expect(denied.drain()).toMatchObject([
    { ...dropped, source: 'fd77::1', count: 2 },
    { ...dropped, source: 'fd77::2', count: 1 },
  ]);
});

test('`DeniedEvents` makes one finding for each destination before DNAT', () => {
  const through = (port: number) => deny({ wire: { address: address('198.51.100.1'), port } });
  denied.add(batchOf([through(80), through(81), through(80), deny()]), 0);
  const wire = (port: number) => ({ wireDestination: { address: '198.51.100.1', port } });
  const taken = denied.drain();
  expect(taken).toMatchObject([
    { ...finding, ...wire(80), count: 2 },
    { ...finding, ...wire(81), count: 1 },
    { ...finding, wireDestination: null, count: 1 },
  ]);
  expect(new Set(taken.map(findingId)).size).toBe(3);
  const { wireDestination: _, ...stored } = taken[2] as FindingDelta;
  expect(findingId(stored)).toBe(findingId(taken[2] as FindingDelta));
});

test('`DeniedEvents` makes no finding of allowed packets', () => {
  denied.add(
    batchOf([
      deny({ type: 'flow_opened', verdict: 'allow' }),
      deny({ type: 'flow_ended', verdict: 'audit' }),
      deny({ type: 'passed', verdict: 'allow' }),
      deny({ type: 'flow_opened', verdict: null }),
    ]),
    0,
  );
  expect([denied.drain(), denied.merged]).toEqual([[], 0]);
});

test('`DeniedEvents` counts events above the limit of 4,096 findings in one finding without addresses', () => {
  const scan = Array.from({ length: 10_000 }, (_, index) => deny({ destinationPort: index }));
  denied.add(batchOf(scan), 0);
  const taken = denied.drain();
  expect(taken.length).toBe(4_097);
  expect(taken.at(-1)).toEqual({
    ...finding,
    source: null,
    destination: null,
    destinationPort: null,
    firstMs: 0,
    lastMs: 0,
    count: 5_904,
  });
  expect([taken.reduce((sum, { count }) => sum + count, 0), denied.overflowed]).toEqual([10_000, 5_904]);
});

test('`DeniedEvents` reports records lost in the ring buffer as a finding of type gap', () => {
  denied.add(batchOf([], { lost: 12 }), 500);
  denied.add(batchOf([], { lost: 3 }), 900);
  expect(denied.drain()).toMatchObject([{ type: 'gap', target: 'dataplane', count: 15, firstMs: 500, lastMs: 900 }]);
});

test('`DeniedEvents` reports events above the event limit of a source as a finding of type gap with the target source_share', () => {
  denied.add(batchOf([deny({ suppressed: 40 }), deny({ type: 'flow_opened', verdict: 'allow', suppressed: 2 })]), 500);
  expect(denied.drain().filter(({ type }) => type === 'gap')).toMatchObject([{ target: 'source_share', count: 42 }]);
});

test('`DeniedEvents` makes a separate finding without a rule for an event of an earlier rule that used the same hit counter', () => {
  denied.add(batchOf([deny(), deny({ hitCheck: 1 })]), 0);
  expect(denied.drain().map(({ rule }) => rule)).toEqual(['no', null]);
});

test('`findingsOfLookups` makes a finding of each denied DNS query and of each DNS query that only audit mode allowed', () => {
  const lookup = (verdict: 'allow' | 'deny' | 'audit') => ({
    source: address('10.0.0.7'),
    hostname: 'www.example.com',
    type: 1,
    generation: 7,
    word: verdictWord(0, verdict, verdict === 'audit'),
    count: 4,
    lastMs: 9,
  });
  const found = findingsOfLookups([lookup('allow'), lookup('deny'), lookup('audit')], ruleNameResolver, owners);
  const dns = {
    ...finding,
    type: 'dns_deny',
    hostname: 'www.example.com',
    destination: null,
    destinationPort: null,
    protocol: null,
    dropReason: null,
    firstMs: 9,
    lastMs: 9,
    count: 4,
  };
  expect(found).toEqual([dns, { ...dns, effectiveAction: 'allow' }]);
});

test('`DeniedEvents` makes a finding for each owner of an address, and uses the owner at the time of the packet', () => {
  const [source, destination] = [address('10.0.0.7'), address('192.0.2.1')];
  owners.change(ownersSince(0, { [source]: 'old', [destination]: 'api' }));
  owners.change(ownersSince(1_000, { [source]: 'new' }));
  for (const unixMs of [500, 999, 1_000]) denied.add(batchOf([deny()], { unixMs }), 0);
  const found = denied.drain();
  expect(found.map(({ sourceOwner, destinationOwner, count }) => [sourceOwner, destinationOwner, count])).toEqual([
    [pod('old'), pod('api'), 2],
    [pod('new'), pod('api'), 1],
  ]);
  expect(new Set(found.map(findingId)).size).toBe(2);
});

test('`findingId` returns the same id for a finding without owners and a finding whose owners are null', () => {
  const { sourceOwner: _, destinationOwner: __, ...older } = { ...finding, firstMs: 0, lastMs: 0, count: 1 };
  expect(findingId(older as FindingDelta)).toBe(
    findingId({ ...finding, firstMs: 0, lastMs: 0, count: 1 } as FindingDelta),
  );
});

test('`findingsOfLookups` and `findingsOfRebindings` name the owners of the addresses', () => {
  const source = address('10.0.0.7');
  owners.change(ownersSince(0, { [source]: 'web', [address('10.0.0.9')]: 'db' }));
  const at = { source, hostname: 'www.example.com', generation: 7, count: 1, lastMs: 9 };
  const [lookup] = findingsOfLookups(
    [{ ...at, type: 1, word: verdictWord(0, 'deny', false) }],
    ruleNameResolver,
    owners,
  );
  const [rebinding] = findingsOfRebindings([{ ...at, address: address('10.0.0.9'), reason: 'private_use' }], owners);
  expect([lookup?.sourceOwner, lookup?.destinationOwner]).toEqual([pod('web'), null]);
  expect([rebinding?.sourceOwner, rebinding?.destinationOwner]).toEqual([pod('web'), pod('db')]);
});
