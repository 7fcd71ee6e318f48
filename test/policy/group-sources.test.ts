import { describe, expect, test } from 'vitest';
import { covers, lastAddress, nextAddress, ofFamily, parseAddress, previousAddress } from '#addresses/ip-address.js';
import { NO_MEMBERS, NO_SELECTORS, type SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { compile } from '#policy/compile/compile.js';
import { CompileMemory } from '#policy/compile/compile-memory.js';
import { groupSourcesOf, groupsWith } from '#policy/model/sources/group-sources.js';
import { ruleScopeOf, staticSources } from '#policy/model/sources/rule-scope.js';
import { Random } from '#test/seed.js';
import { generatePolicy } from './generate.js';
import { address, group, policy, rule, selector } from './sample.js';

const groupsOf = ({ groups }: Policy, source: string, most = 16) =>
  groupsWith(groupSourcesOf(groups), parseAddress(source) ?? Number.NaN, most);

describe('sources of groups', () => {
  test('an address is in each group with a prefix that contains it, in the order of evaluation, also in groups without rules', () => {
    const given = policy([
      group(['10.0.0.0/8'], [rule()]),
      group(['10.0.0.7/32', '10.0.0.0/8'], []),
      group(['10.0.0.0/24'], [], { defaultAction: 'deny' }),
      group(['0.0.0.0/0'], [rule()]),
      group(['10.0.1.0/24'], [rule()]),
    ]);
    expect([groupsOf(given, '10.0.0.7'), groupsOf(given, '10.0.1.255'), groupsOf(given, '9.255.255.255')]).toEqual([
      [0, 1, 2, 3],
      [0, 1, 3, 4],
      [3],
    ]);
    expect(groupsOf(policy([]), '10.0.0.7')).toEqual([]);
  });

  test('an IPv6 address is in the groups with a prefix of IPv6 that contains it, at any length', () => {
    const given = policy([
      group(['2001:db8::/32', '0.0.0.0/0'], [rule()]),
      group(['2001:db8:0:1::/64'], [rule()]),
      group(['2001:db8:0:1::7/128', '2001:db8:0:1::/65'], []),
      group(['::/0'], [rule()]),
      group(['10.0.0.0/8'], [rule()]),
    ]);
    expect(
      ['2001:db8:0:1::7', '2001:db8:0:1:8000::7', '2001:db8:0:2::', '2001:db9::', '10.0.0.1'].map((source) =>
        groupsOf(given, source),
      ),
    ).toEqual([[0, 1, 2, 3], [0, 1, 3], [0, 3], [3], [0, 4]]);
    expect(groupsOf(policy([group(['10.0.0.0/8'], [])]), '::a00:1')).toEqual([]);
  });

  test('the search for the source groups of an address returns at most the requested number of groups, the first in the order of evaluation', () => {
    const given = policy(
      Array.from({ length: 40 }, (_, at) => group([at % 2 === 0 ? '10.0.0.0/8' : '10.0.0.7/32'], [])),
    );
    expect(groupsOf(given, '10.0.0.7', 4)).toEqual([0, 1, 2, 3]);
    expect(groupsOf(given, '10.0.0.8', 3)).toEqual([0, 2, 4]);
  });

  test.each(['ipv4', 'ipv6'] as const)(
    'the groups of an address of %s are those of the reference evaluator, in random policies and after each change of a policy',
    (family) => {
      const random = new Random(11);
      const memory = new CompileMemory();
      let named = 0;
      for (let number = 0; number < 60; number++) {
        const given = generatePolicy(random, { families: ['ipv4', 'ipv6'] });
        const { sources } = compile(given, { memory, ipv6: true }).ruleNames;
        const edges = given.groups.flatMap((each) =>
          ofFamily(staticSources(each, NO_SELECTORS), family).flatMap((prefix) => [
            ...[prefix.address, previousAddress(prefix.address)],
            ...[lastAddress(prefix), nextAddress(lastAddress(prefix))],
          ]),
        );
        for (const source of edges) {
          const expected = [...given.groups.keys()].filter((at) =>
            given.groups[at]?.sources.some((prefix) => covers(prefix, source)),
          );
          expect(groupsWith(sources, source, 1_000)).toEqual(expected);
          named += expected.length;
        }
      }
      expect(named).toBeGreaterThan(500);
    },
  );

  test('the networks that a resolved Kubernetes selector selects are sources of its group, also if only these networks change', () => {
    const pods = selector('nodes');
    const given = policy([group([], [rule()], { selectors: [pods] }), group(['10.0.0.0/8'], [rule()])]);
    const resolution = (networks: SelectorResolution['networks']): SelectorResolution => ({
      ...NO_SELECTORS,
      resolved: new Set([pods.key]),
      networks,
    });
    const memory = new CompileMemory();
    const groups = (scope: SelectorResolution) => {
      const list = { added: [], addresses: [], sets: new Uint32Array(0), dropped: [] };
      const { sources } = compile(given, { memory, membership: { scope, list } }).ruleNames;
      const source = address('10.244.1.9');
      const scopes = given.groups.map((each) => ruleScopeOf(each, source, { resolution: scope, members: NO_MEMBERS }));
      const found = groupsWith(sources, source, 16);
      expect(found).toEqual([...scopes.keys()].filter((at) => scopes[at] === 'all'));
      return [found, sources.hasSelectors];
    };
    expect(groups(resolution(new Map()))).toEqual([[1], true]);
    const network = { address: address('10.244.1.0'), length: 24 };
    expect(groups(resolution(new Map([[pods.key, [network]]])))).toEqual([[0, 1], true]);
  });
});
