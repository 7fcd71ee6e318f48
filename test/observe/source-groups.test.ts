import { beforeEach, describe, expect, test } from 'vitest';
import type { Address, Policy } from '#contracts/policy/policy-model.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { Surroundings } from '#dataplane/events/surroundings.js';
import { DeniedConnections } from '#observe/denials/denied-connections.js';
import { DeniedEvents, findingsOfLookups } from '#observe/denials/denied-events.js';
import type { FindingDelta } from '#observe/findings/finding.js';
import { findingId, merged } from '#observe/findings/store/finding-id.js';
import { AddressNames } from '#observe/names/address-names.js';
import { AddressOwners } from '#observe/names/address-owners.js';
import { RuleNameResolver } from '#observe/names/rule-name-resolver.js';
import type { Frame } from '#observe/wiretap/frame.js';
import { WiretapHub } from '#observe/wiretap/hub.js';
import { ruleNamesOf } from '#policy/model/rules/rule-names.js';
import { address, group, policy, rule, selector } from '#test/policy/sample.js';
import { seenConnection } from './connections.js';
import { batchOf, type EventInput } from './events.js';
import { ownersSince } from './owners.js';

const [IN_TWO, IN_ONE, IN_NONE] = [address('10.0.0.7'), address('10.9.0.1'), address('192.0.2.9')];
/** Rank 0 is the rule `web`, and rank 1 the default of the policy. */
const office = policy([
  group(['10.0.0.0/8'], [rule({ id: 'web' })], { id: 'lan' }),
  group(['10.0.0.7/32'], [], { id: 'nas' }),
]);
const BY_DEFAULT = { kind: 'policy_default' } as const;

let owners: AddressOwners;
let resolver: RuleNameResolver;
let hub: WiretapHub;
let given: Frame[];
let checks: readonly [rule: number, policyDefault: number];
function rig(of: Policy): void {
  const ruleNames = ruleNamesOf(of);
  checks = [ruleNames.identities[0] as number, ruleNames.identities[2] as number];
  const surroundings = new Surroundings();
  const entries = Uint32Array.from([5, 6]);
  surroundings.learn({ kind: 'rule_names', placed: { ruleNames, generation: 7, entries, epoch: 3 } });
  owners = new AddressOwners();
  resolver = new RuleNameResolver(surroundings.ruleNameHistory);
  given = [];
  const known = { ruleNameResolver: resolver, names: new AddressNames(), owners, surroundings };
  const output = { frame: (frame: Frame) => void given.push(frame), subscribed: () => {}, refused: () => {} };
  hub = new WiretapHub(known, output, 0);
  const every = { sources: [], destinations: [], ports: [], protocols: [], hostnames: [] };
  hub.open(1, { ...every, groups: [], rules: [], verdicts: [], types: [] }, 0);
}
beforeEach(() => rig(office));

/** A packet that the default of the policy denied; with `isOfRule`, one that the rule denied. */
const denial = (source: Address, isOfRule = false): EventInput => ({
  ...{ type: 'denied', verdict: 'deny', dropReason: 7, source, destinationPort: 443, epoch: 3 },
  ...(isOfRule ? { hit: 5, hitCheck: checks[0] } : { hit: 6, hitCheck: checks[1] }),
});
const lookup = (source: number, rank = 1) => ({
  ...{ source, hostname: 'a.test', type: 1, generation: 7, count: 1, lastMs: 1_000 },
  word: verdictWord(rank, 'deny', false),
});
/** Gives the events to the wiretap, and returns the member `source_groups` of each message. */
const told = (events: readonly EventInput[], ...more: (() => void)[]) => {
  hub.events(batchOf(events, { unixMs: 1_000 }), 1_000);
  for (const give of more) give();
  const texts = given.flatMap(({ bytes }) => (bytes.length === 0 ? [] : [new TextDecoder().decode(bytes)]));
  const messages = texts.flatMap((text) => [JSON.parse(text)].flat() as Record<string, unknown>[]);
  return messages.map(({ source_groups: groups, decided_by: by }) => [by, groups]);
};
const connections = (...seen: ReturnType<typeof seenConnection>[]) => ({ connections: seen, lost: 0, lostDenied: 0 });
const lookups = (...of: ReturnType<typeof lookup>[]) => ({
  lookups: of,
  rebindings: [],
  named: [],
  lost: 0,
  lostDenied: 0,
});

describe('groups of a source that the default of the policy denied', () => {
  test('a wiretap message has the groups of its source if the default decided, and no such member if a rule did', () => {
    const seen = told(
      [denial(IN_TWO), denial(IN_ONE), denial(IN_NONE), denial(IN_TWO, true), denial(IN_TWO)],
      () => hub.lookups(lookups(lookup(IN_ONE), lookup(IN_ONE, 0)), 1_000),
      () => hub.connections(connections(seenConnection({ decider: BY_DEFAULT }), seenConnection()), 1_000),
    );
    expect(seen).toEqual([
      ['policy_default', ['lan', 'nas']],
      ['policy_default', ['lan']],
      ['policy_default', []],
      ['rule', undefined],
      ['policy_default', ['lan', 'nas']],
      ['policy_default', ['lan']],
      ['rule', undefined],
      ['policy_default', ['lan', 'nas']],
      ['rule', undefined],
    ]);
  });

  test('a wiretap message and a finding have the groups of an IPv6 source, and of an IPv4 source with the same bits', () => {
    rig({ ...office, groups: [...office.groups, group(['2001:db8::/48', '::/96'], [], { id: 'lan6' })] });
    const sources = [0x2001_0db8_0000_0001_0000_0000_0000_0007n, BigInt(IN_ONE), IN_ONE, 0xfd00n << 112n];
    const expected = [['lan6'], ['lan6'], ['lan'], []];
    expect(told(sources.map((source) => denial(source)))).toEqual(expected.map((ids) => ['policy_default', ids]));
    const events = new DeniedEvents(resolver, owners);
    events.add(batchOf(sources.map((source) => denial(source))), 0);
    expect(events.drain().map(({ source, sourceGroups }) => [source, sourceGroups])).toEqual([
      ['2001:db8:0:1::7', ['lan6']],
      ['::a09:1', ['lan6']],
      ['10.9.0.1', ['lan']],
      ['fd00::', []],
    ]);
  });

  test('the groups of a source with a Kubernetes owner are null if the policy has selectors, and known if it has none', () => {
    const owned = { [IN_ONE]: 'web' };
    owners.change(ownersSince(0, owned));
    expect(told([denial(IN_ONE)])).toEqual([['policy_default', ['lan']]]);
    rig({ ...office, groups: [...office.groups, group([], [], { id: 'pods', selectors: [selector('web')] })] });
    owners.change(ownersSince(0, owned));
    expect(told([denial(IN_ONE), denial(IN_TWO)])).toEqual([
      ['policy_default', null],
      ['policy_default', ['lan', 'nas']],
    ]);
  });

  test('a finding has the groups of its source if the default decided, and keeps its id', () => {
    const [events, denied] = [new DeniedEvents(resolver, owners), new DeniedConnections(resolver, owners)];
    events.add(batchOf([denial(IN_TWO), denial(IN_NONE), denial(IN_TWO, true)]), 0);
    denied.add(connections(seenConnection({ decider: BY_DEFAULT }), seenConnection()), 0);
    const found = [...events.drain(), ...denied.drain(), ...findingsOfLookups([lookup(IN_ONE)], resolver, owners)];
    const groups = found.map(({ decidedBy, sourceGroups }) => [decidedBy, sourceGroups]);
    expect(groups).toEqual([
      ['policy_default', ['lan', 'nas']],
      ['policy_default', []],
      ['rule', undefined],
      ['policy_default', ['lan', 'nas']],
      ['rule', undefined],
      ['policy_default', ['lan']],
    ]);
    for (const { sourceGroups, ...older } of found)
      expect(findingId({ ...older })).toBe(findingId({ ...older, ...{ sourceGroups } }));
  });

  test('a merged finding has the groups of its latest event', () => {
    const [delta] = findingsOfLookups([lookup(IN_ONE)], resolver, owners);
    const later = { ...(delta as FindingDelta), lastMs: 2_000, sourceGroups: ['new'] };
    expect([merged(delta, later).sourceGroups, merged(later, delta as FindingDelta).sourceGroups]).toEqual([
      ['new'],
      ['new'],
    ]);
  });
});
