import { beforeEach, expect, test } from 'vitest';
import type { SeenConnection } from '#contracts/service-plane/seen-connection.js';
import { RuleNameHistory } from '#dataplane/events/rule-name-history.js';
import { DeniedConnections } from '#observe/denials/denied-connections.js';
import { emptyIdentity } from '#observe/findings/empty-identity.js';
import { findingId } from '#observe/findings/store/finding-id.js';
import { AddressOwners } from '#observe/names/address-owners.js';
import { RuleNameResolver } from '#observe/names/rule-name-resolver.js';
import { ruleNamesOf, ruleNamesOfRecord } from '#policy/model/rules/rule-names.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { request, seenConnection } from './connections.js';
import { DENIED_FINDING } from './denied-finding.js';
import { ownersSince, pod } from './owners.js';

const record = { id: '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10', revision: 1 };
const ruleNames = ruleNamesOfRecord(
  ruleNamesOf(policy([group(['10.0.0.0/8'], [rule({ id: 'no' })], { id: 'lan' })])),
  record,
);
let denied: DeniedConnections;
let owners: AddressOwners;
beforeEach(() => {
  const ruleNameHistory = new RuleNameHistory();
  ruleNameHistory.place({ ruleNames, generation: 7, entries: Uint32Array.from([5, 6]), epoch: 3 });
  owners = new AddressOwners();
  denied = new DeniedConnections(new RuleNameResolver(ruleNameHistory), owners);
});
const add = (...connections: SeenConnection[]) => denied.add({ connections, lost: 0, lostDenied: 0 }, 0);
const finding = {
  ...DENIED_FINDING,
  type: 'tls_deny',
  policyId: record.id,
  sni: 'www.example.com',
  firstMs: 1_000,
  lastMs: 1_000,
  count: 1,
};

test('`DeniedConnections` merges equal denied connections with different source ports into one finding, with the first and last time', () => {
  add(seenConnection({ atMs: 2_000 }), seenConnection({ sourcePort: 9, atMs: 1_000 }));
  add(seenConnection({ atMs: 4_000 }));
  expect(denied.drain()).toEqual([{ ...finding, lastMs: 4_000, count: 3 }]);
  expect([denied.drain(), denied.merged]).toEqual([[], 3]);
});

test('`DeniedConnections` records method, host and path of a denied request, and marks a request that audit mode allowed', () => {
  add(request('/a'), request('/a', { verdict: 'audit', reason: 'response/headers/deny_present/x' }));
  const http = { method: 'GET', host: 'www.example.com', path: '/a' };
  expect(denied.drain()).toEqual([
    { ...finding, type: 'http_deny', http },
    {
      ...finding,
      type: 'http_deny',
      http,
      reason: 'response/headers/deny_present/x',
      effectiveAction: 'allow',
    },
  ]);
});

test('`DeniedConnections` makes a separate finding with a separate id for each reason of a denial', () => {
  add(seenConnection(), seenConnection({ reason: 'late' }), seenConnection({ reason: 'no_ca' }));
  const taken = denied.drain();
  expect(taken.map(({ reason }) => reason)).toEqual([null, 'late', 'no_ca']);
  expect(new Set(taken.map((delta) => findingId(delta))).size).toBe(3);
  expect(findingId({ ...emptyIdentity, type: 'l4_deny', effectiveAction: 'deny' })).toBe(
    '71954b93b46d09b2c09e73279f95b8fe',
  );
});

test('`DeniedConnections` makes no finding of an allowed connection, and leaves rule and policy id empty if they are unknown', () => {
  add(seenConnection({ verdict: 'allow' }), seenConnection({ decider: null }), seenConnection({ generation: 6 }));
  expect(denied.drain().map(({ policyId, rule: by, decidedBy }) => [policyId, by, decidedBy])).toEqual([
    [null, null, null],
    [null, 'no', 'rule'],
  ]);
});

test('`DeniedConnections` counts denied requests above the limit of 256 findings per client in one finding without destination, server name and path', () => {
  for (let from = 0; from < 1_000_000; from += 1_000)
    add(...Array.from({ length: 1_000 }, (_, index) => request(`/${from + index}`)));
  add(request('/other', { source: address('10.0.0.8') }));
  const taken = denied.drain();
  expect(taken.length).toBe(256 + 1 + 1);
  expect(taken.at(-1)).toEqual({
    ...finding,
    type: 'http_deny',
    destination: null,
    destinationPort: null,
    sni: null,
    count: 1_000_000 - 256,
  });
  expect(taken.at(-2)).toMatchObject({ source: '10.0.0.8', http: { path: '/other' } });
  expect([denied.merged, denied.overflowed]).toEqual([1_000_001, 1_000_000 - 256]);
});

test('`DeniedConnections` reports denied connections above the limit of all findings, and those that the service plane lost, as one finding of type gap', () => {
  for (let source = 0; source < 8_000; source++) add(request('/', { source, atMs: 3_000 }));
  denied.add({ connections: [], lost: 9, lostDenied: 4 }, 5_000);
  const taken = denied.drain();
  expect(taken.length).toBe(4_096 + 2_048 + 1);
  expect(taken.at(-1)).toMatchObject({
    type: 'gap',
    target: 'service_plane',
    count: 8_000 - 4_096 - 2_048 + 4,
    firstMs: 3_000,
    lastMs: 5_000,
  });
  expect(taken.reduce((sum, { count }) => sum + count, 0)).toBe(8_004);
});

test('`DeniedConnections` makes a finding for each owner of an address, and names the owner of the source also above the limit of findings', () => {
  const [source, destination] = [address('10.0.0.7'), address('192.0.2.1')];
  owners.change(ownersSince(0, { [source]: 'old', [destination]: 'api' }));
  owners.change(ownersSince(2_000, { [source]: 'new' }));
  add(seenConnection({ atMs: 1_000 }), seenConnection({ atMs: 1_500 }), seenConnection({ atMs: 2_000 }));
  const shown = () => denied.drain().map((of) => [of.sourceOwner, of.destinationOwner, of.destination, of.count]);
  expect(shown()).toEqual([
    [pod('old'), pod('api'), '192.0.2.1', 2],
    [pod('new'), pod('api'), '192.0.2.1', 1],
  ]);
  add(...Array.from({ length: 257 }, (_, port) => seenConnection({ atMs: 2_000, destinationPort: port })));
  expect(shown().at(-1)).toEqual([pod('new'), null, null, 1]);
});
