import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { EMPTY_SET } from '#contracts/kubernetes/member-tables.js';
import {
  DENY_ONLY_MEMBER,
  type ListedMembership,
  NO_MEMBERS,
  type SelectorResolution,
} from '#contracts/kubernetes/membership.js';
import type { Address, Family, Group, Packet, Policy, Prefix } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { compile } from '#policy/compile/compile.js';
import { CompileMemory } from '#policy/compile/compile-memory.js';
import { classify } from '#policy/evaluate/classify.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { evaluateLookup } from '#policy/evaluate/lookup/evaluate-lookup.js';
import { LookupIndex } from '#policy/evaluate/lookup/lookup-index.js';
import { explain } from '#policy/explain/explain.js';
import { addressesWithSets, membershipOf } from '#policy/model/sources/group-sets.js';
import { MemberIndex } from '#policy/model/sources/member-index.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { expectEqual } from '#test/expect-equal.js';
import {
  generateGrants,
  generateMembership,
  generatePolicy,
  ipv6PacketGenerator,
  packetGenerator,
} from '#test/policy/generate.js';
import { grantedNames } from '#test/policy/granted-names.js';
import { address, group, packet, policy, rule, selector } from '#test/policy/sample.js';
import { wireNameOf } from '#test/policy/wire-name.js';
import { Random, seedOf } from '#test/seed.js';

const seed = seedOf(20_261_126);
const SHAPE = { groups: 8, rules: 5, selectors: 0.5 };
const EVERY_NETWORK = [
  { address: 0, length: 0 },
  { address: 0n, length: 0 },
];

type Case = { readonly policy: Policy; readonly given: ListedMembership; readonly program: Program };

const BOTH: readonly Family[] = ['ipv4', 'ipv6'];

function cases(count: number, visit: (one: Case, random: Random) => void): void {
  for (let number = 0; number < count; number++) {
    const random = new Random(seed + number * 7919);
    const made = generatePolicy(random, { ...SHAPE, families: BOTH });
    const given = generateMembership(random, made, BOTH);
    visit({ policy: made, given, program: compile(made, { ipv6: true, membership: given }) }, random);
  }
}

/** Returns a function that generates packets of both families. */
function packetsOf(random: Random, made: Policy, podNetworks: readonly Prefix[] = []): () => Packet {
  const ipv4 = packetGenerator(random, made, podNetworks);
  const ipv6 = ipv6PacketGenerator(random, made, podNetworks);
  return () => (random.chance(0.5) ? ipv4() : ipv6());
}

/**
 * Fails with `about` if two verdict words differ. `expect` for each of thousands of packets takes too long.
 */
function expectWord(found: number, wanted: number, about: object): void {
  if (found !== wanted) expect.fail(inspect({ ...about, found, wanted }));
}

/** Returns the index by which the datapath classifies packets from a source. */
function setOf({ program, given }: Case, source: Address): number | undefined {
  const set = membershipOf(given).members.setOf(source);
  return set === undefined || program.members === null ? undefined : new MemberIndex(program.members).indexOf(set);
}

describe('a policy compiled for a scope and members', () => {
  test('a compiled policy agrees with the reference evaluator for Kubernetes members, pod networks without members and other sources', () => {
    let members = 0;
    let denyOnly = 0;
    let ipv6Members = 0;
    cases(300, (one, random) => {
      const grants = generateGrants(random.word());
      const next = packetsOf(random, one.policy, one.given.scope.podNetworks);
      const membership = membershipOf(one.given);
      const lookups = new LookupIndex(one.program.lookups);
      for (let count = 0; count < 300; count++) {
        const tried = next();
        const set = setOf(one, tried.source);
        const names = grantedNames(one.program, tried.destination, grants);
        const { rank, verdict, audited } = evaluate(one.policy, tried, grants, membership);
        const about = { seed: random.seed, tried, set };
        expectWord(classify(one.program, tried, names, set), verdictWord(rank, verdict, audited), about);
        members += set === undefined || set === EMPTY_SET ? 0 : 1;
        denyOnly += one.given.scope.podNetworks.length > 0 && set === undefined ? 1 : 0;
        ipv6Members += set === undefined || set === EMPTY_SET || typeof tried.source === 'number' ? 0 : 1;
        // DNS lookups come from IPv4 clients alone.
        if (typeof tried.source === 'bigint') continue;
        const asked = random.pick(['api.example.com', 'www.example.com', 'example.org']);
        const lookup = evaluateLookup(one.policy, tried.source, asked, membership);
        const found = lookups.decide(tried.source, wireNameOf(asked), set);
        expectWord(found, verdictWord(lookup.rank, lookup.verdict, lookup.audited), { ...about, asked });
      }
    });
    expect(members).toBeGreaterThan(5_000);
    expect(denyOnly).toBeGreaterThan(5_000);
    expect(ipv6Members).toBeGreaterThan(3_000);
  });

  test('a compiled policy applies all deny rules and no allow rules of groups with selectors to a source whose set of groups was not compiled', () => {
    cases(200, ({ policy: made, given, program }, random) => {
      if (program.members === null) return;
      const resolution: SelectorResolution = { ...given.scope, podNetworks: EVERY_NETWORK };
      const next = packetsOf(random, made);
      const grants = generateGrants(random.word());
      for (let count = 0; count < 100; count++) {
        const tried = next();
        const { rank, verdict, audited } = evaluate(made, tried, grants, { resolution, members: NO_MEMBERS });
        const names = grantedNames(program, tried.destination, grants);
        for (const set of [0, 4_000]) {
          const about = { seed: random.seed, tried, set };
          expectWord(classify(program, tried, names, set), verdictWord(rank, verdict, audited), about);
        }
      }
    });
  });

  test('a compiled policy has the same bytes if other Kubernetes members have the same sets of groups and static sources, also with a cache', () => {
    const memory = new CompileMemory();
    cases(150, ({ policy: made, given, program }, random) => {
      const { added } = given.list;
      // List the former members (addresses that were members) as members: they give the same rules.
      const order = [...addressesWithSets(given)].sort(() => (random.chance(0.5) ? 1 : -1));
      const list = {
        dropped: [],
        added: added.map(({ number, keys }) => ({ number: 100 - number, keys: [...keys].reverse() })).reverse(),
        addresses: order.map(([address]) => address),
        sets: Uint32Array.from(order, ([, set]) => 100 - set),
      };
      expectEqual(compile(made, { ipv6: true, membership: { scope: given.scope, list } }), program);
      expectEqual(compile(made, { ipv6: true, memory, membership: given }), program);
    });
  });

  test('a policy without selectors compiles to the same bytes with and without Kubernetes members', () => {
    for (let number = 0; number < 50; number++) {
      const random = new Random(seed + number);
      const made = generatePolicy(random);
      const without = { ...made, groups: made.groups.map((one): Group => ({ ...one, selectors: [] })) };
      expect(compile(without, { membership: generateMembership(random, made) })).toEqual(compile(without));
    }
  });
});

describe('`MemberIndex`', () => {
  const web = group([], [rule()], { selectors: [selector('web')] });
  const db = group(['10.0.0.0/8'], [rule({ ports: ['5432'] })], { selectors: [selector('db')] });
  const keys = { web: selector('web').key, db: selector('db').key };
  const scope = { resolved: new Set([keys.web, keys.db]), podNetworks: [], networks: new Map() };
  const list = {
    dropped: [],
    added: [{ number: 7, keys: [keys.web] }],
    addresses: [address('192.0.2.1')],
    sets: Uint32Array.of(7),
  };
  const { members } = compile(policy([web, db]), { membership: { scope, list } });
  if (members === null) throw new Error('the policy has resolved selectors');
  const index = new MemberIndex(members);

  test('`MemberIndex` (sets of source groups in a compiled policy) finds the set of a Kubernetes address by its selectors, and ignores selectors that the policy lacks', () => {
    expect(index.indexOf({ number: 1, keys: ['other'] })).toBe(EMPTY_SET);
    expect(index.indexOf({ number: 2, keys: ['other', keys.web] })).toBe(EMPTY_SET + 1);
    expect(index.indexOf({ number: 3, keys: [keys.db] })).toBe(0);
  });

  test('`MemberIndex.has` finds a set of source groups at an address only if the policy was compiled for it with the same groups by address; the empty set is everywhere', () => {
    expect(index.has(address('192.0.2.200'), EMPTY_SET + 1)).toBe(true);
    expect(index.has(address('10.0.0.1'), EMPTY_SET + 1)).toBe(false);
    expect(index.has(address('10.0.0.1'), EMPTY_SET)).toBe(true);
    expect(index.has(address('10.0.0.1'), 0)).toBe(false);
  });
});

describe('`MemberRecord`', () => {
  test('`MemberRecord.setOf` returns the member without allow rules for an address with the deny-only number, and no member for one with the number 0', () => {
    const record = new MemberRecord();
    const [owned, denyOnly] = [address('10.0.0.1'), address('10.0.0.2')];
    const addresses = [owned, denyOnly];
    const added = [{ number: 1, keys: [] }];
    record.change({ added, addresses, sets: Uint32Array.of(1, DENY_ONLY_MEMBER.number), dropped: [] });
    expect([record.setOf(owned), record.setOf(denyOnly)]).toEqual([{ number: 1, keys: [] }, DENY_ONLY_MEMBER]);
    expect(record.list()).toEqual({ added, addresses, sets: Uint32Array.of(1, DENY_ONLY_MEMBER.number), dropped: [] });
    record.change({ added: [], addresses, sets: Uint32Array.of(0, 0), dropped: [] });
    expect([record.setOf(owned), record.setOf(denyOnly)]).toEqual([undefined, undefined]);
  });
});

describe('`explain` with members', () => {
  const pods = group([], [rule({ id: 'web' })], { id: 'pods', selectors: [selector('web')] });
  const set = { number: 1, keys: [selector('web').key] };
  const resolution = {
    resolved: new Set(set.keys),
    podNetworks: [{ address: address('10.0.0.0'), length: 24 }],
    networks: new Map(),
  };

  test('`explain` names the rule of the group whose selector selects the source', () => {
    const members = { setOf: (source: number) => (source === address('10.0.0.1') ? set : undefined) };
    const options = { membership: { resolution, members } };
    expect(explain(policy([pods]), { packet: packet() }, options)).toMatchObject({ source_group: 'pods', rule: 'web' });
    expect(explain(policy([pods]), { packet: packet({ source: '10.0.0.2' }) }, options).walk[0]?.why).toBe(
      'no object owns this source in a network of pods, so it allows nothing from this source',
    );
    expect(explain(policy([pods]), { packet: packet({ source: '10.0.1.2' }) }, options).walk[0]?.why).toBe(
      'source 10.0.1.2 is not among its sources',
    );
    const denyOnly = { membership: { resolution, members: { setOf: () => DENY_ONLY_MEMBER } } };
    expect(explain(policy([pods]), { packet: packet({ source: '10.0.1.2' }) }, denyOnly).walk[0]?.why).toBe(
      'no selector can be decided for the owner of this source, so it allows nothing from this source',
    );
  });
});
