import { expect, test } from 'vitest';
import { parseCidr } from '#addresses/ip-address.js';
import { analyse } from '#analysis/analyse.js';
import { type AddressSpace, IPV4, IPV6 } from '#analysis/engine/address-space.js';
import { compare } from '#analysis/engine/comparison.js';
import { editedPolicy, type Proposal } from '#analysis/lint/edits.js';
import { lintPolicy } from '#analysis/lint/lint.js';
import { LINT_CHECKS, type LintCheck, type LintEdit, type PolicyLint } from '#contracts/analysis/policy-lint.js';
import type { Family, Policy, Rule } from '#contracts/policy/policy-model.js';
import { evaluateLookup } from '#policy/evaluate/lookup/evaluate-lookup.js';
import { parsePorts } from '#policy/model/parse-ports.js';
import { expectEqual } from '#test/expect-equal.js';
import { Random, seedOf } from '#test/seed.js';
import { generatePolicy } from '../policy/generate.js';
import { includes, packetsOf, worldOf } from './check-comparison.js';
import { randomPolicy } from './edits.js';
import { dualModelOf, modelOf, OFFICE, officeAfter } from './office.js';
import { decideIn, decideLookupIn, randomWorld } from './world.js';

const POLICIES = Number(process.env.WEIR_PAIRS ?? 250);
const PACKETS = 60;
const NAMES = [
  'api.example.com',
  'www.example.com',
  'www1.test',
  'other.org',
  'a.b.example.com',
  'x.invalid',
  'zz.example.com',
];

const BOTH = [IPV4, IPV6];

function lint(
  policy: Policy,
  checks: readonly LintCheck[] = LINT_CHECKS,
  { limit = 1_000, spaces = [IPV4] }: { readonly limit?: number; readonly spaces?: readonly AddressSpace[] } = {},
): PolicyLint {
  return lintPolicy(policy, { spaces, checks, limit, steps: 8_000_000 });
}

/** Reads the matchers of an edit, as a person who applies the edit to the document writes them. */
function proposalOf(policy: Policy, edit: LintEdit): Proposal {
  if (edit.edit !== 'replace_rule') return { edit };
  const group = policy.groups.find(({ id }) => id === edit.source_group);
  const rule = group?.rules.find(({ id }) => id === edit.rule);
  if (rule === undefined) throw new Error(JSON.stringify(edit));
  const {
    dst_cidrs: cidrs,
    dst_ports: ports,
    src_ports: sourcePorts,
    icmp_types: types,
    icmp_codes: codes,
  } = edit.match;
  const ranges = (specs: NonNullable<typeof ports>) =>
    specs.flatMap((spec) => {
      const parsed = parsePorts(spec);
      return 'range' in parsed ? [parsed.range] : [];
    });
  const merged: Rule = {
    ...rule,
    ...(cidrs === undefined ? {} : { destinations: cidrs.flatMap((text) => parseCidr(text)?.prefix ?? []) }),
    ...(ports === undefined ? {} : { destinationPorts: ranges(ports) }),
    ...(sourcePorts === undefined ? {} : { sourcePorts: ranges(sourcePorts) }),
    ...(types === undefined ? {} : { icmpTypes: types }),
    ...(codes === undefined ? {} : { icmpCodes: codes }),
  };
  return { edit, merged };
}

const isEqual = (one: Policy, other: Policy, spaces: readonly AddressSpace[] = [IPV4]): boolean => {
  const { regions, lookups, left } = compare(one, other, { spaces });
  return regions.length + lookups.length + left.length === 0;
};

/** Adds copies of rules in which one list of matchers is another one. */
function withTwins(random: Random, policy: Policy, families: readonly Family[]): Policy {
  const others = generatePolicy(random, { groups: 3, families }).groups.flatMap(({ rules }) => rules);
  return {
    ...policy,
    groups: policy.groups.map((group) => {
      const rules = [...group.rules];
      for (const rule of group.rules) {
        const field = random.pick([
          'destinations',
          'destinationPorts',
          'sourcePorts',
          'icmpTypes',
          'icmpCodes',
        ] as const);
        const values = others.map((other) => other[field]).filter(({ length }) => length > 0);
        if (rule[field].length === 0 || values.length === 0 || random.chance(0.5)) continue;
        const twin = { ...rule, id: `${rule.id}-twin`, [field]: random.pick(values) };
        rules.splice(random.between(0, rules.length), 0, twin);
      }
      return { ...group, rules };
    }),
  };
}

type Tried = { readonly random: Random; readonly spaces: readonly AddressSpace[] };

/** Calls `check` for random policies, of IPv4 and of both families in turn. */
const eachPolicy = (seed: number, check: (policy: Policy, tried: Tried) => void): void => {
  const base = seedOf(seed);
  for (let count = 0; count < POLICIES; count++) {
    const random = new Random(base * 1_000_003 + count);
    try {
      const families: readonly Family[] = count % 2 === 0 ? ['ipv4'] : ['ipv4', 'ipv6'];
      const spaces = count % 2 === 0 ? [IPV4] : BOTH;
      check(withTwins(random, randomPolicy(random, { families }), families), { random, spaces });
    } catch (error) {
      throw new Error(`policy ${count} of seed ${base}: ${String(error)}`, { cause: error });
    }
  }
};

test('all edits that lint proposes, each alone and all together, change no flow and no lookup', () => {
  const counts: Record<LintCheck, number> = { unreachable: 0, removable: 0, mergeable: 0, conflict: 0 };
  eachPolicy(11, (policy, { random, spaces }) => {
    const { findings, complete, together } = lint(policy, LINT_CHECKS, { spaces });
    expect([complete, together.verdict]).toEqual([true, 'equal']);
    for (const { check } of findings) counts[check]++;
    const proposals = findings.filter(({ check }) => check !== 'conflict').map(({ edit }) => proposalOf(policy, edit));
    expect(together.edits).toBe(proposals.length);
    for (const proposal of proposals)
      expect(isEqual(policy, editedPolicy(policy, [proposal]), spaces), JSON.stringify(proposal.edit)).toBe(true);
    const after = editedPolicy(policy, proposals);
    expect(isEqual(policy, after, spaces)).toBe(true);
    const packets = spaces.map((space) => packetsOf(random, policy, space).edge);
    for (let tried = 0; tried < PACKETS; tried++) {
      const world = randomWorld(random, [policy]);
      const asked = random.pick(packets)();
      expectEqual(
        { asked, decided: decideIn(after, asked, world) },
        { asked, decided: decideIn(policy, asked, world) },
      );
      const name = random.pick(NAMES);
      const { source } = random.pick(packets)();
      expectEqual(decideLookupIn(after, source, name, world), decideLookupIn(policy, source, name, world));
    }
  });
  expect(Math.min(...Object.values(counts)), JSON.stringify(counts)).toBeGreaterThan(POLICIES / 50);
});

/**
 * Returns the policy with the other mode of one rule: only flows that the rule decides have another outcome.
 */
function withOtherMode(policy: Policy, group: string, rule: string): Policy {
  return withRules(policy, group, (rules) =>
    rules.map((one) => (one.id === rule ? { ...one, mode: one.mode === 'audit' ? 'enforce' : 'audit' } : one)),
  );
}

const withRules = (policy: Policy, group: string, edit: (rules: readonly Rule[]) => readonly Rule[]): Policy => ({
  ...policy,
  groups: policy.groups.map((own) => (own.id === group ? { ...own, rules: edit(own.rules) } : own)),
});

test('lint calls a rule unreachable if and only if it decides no flow and no lookup, and each other rule decides a packet', () => {
  let confirmed = 0;
  eachPolicy(12, (policy, { random, spaces }) => {
    const { findings } = lint(policy, ['unreachable'], { spaces });
    const packets = spaces.map((space) => packetsOf(random, policy, space).edge);
    for (const group of policy.groups)
      for (const rule of group.rules) {
        const named = JSON.stringify([group.id, rule.id]);
        const isFound = findings.some(
          ({ source_group: id, rules }) => id === group.id && (rules.length === 0 || rules.includes(rule.id)),
        );
        const other = withOtherMode(policy, group.id, rule.id);
        const { regions, conditions } = compare(policy, other, { spaces });
        const changes = regions.flatMap((region) => region.changes.map((change) => ({ region, change })));
        if (isFound) expect(changes, named).toEqual([]);
        if (isFound || changes.length > 0) {
          for (const { region, change } of changes.slice(0, 1)) {
            const world = worldOf(conditions.describe(change.condition));
            const { corner } = packetsOf(random, policy, region.space);
            const decided = Array.from({ length: 50 }, () => corner(region)).find((one) => includes(region, one));
            if (world === undefined || decided === undefined) continue;
            expect(decideIn(other, decided, world).outcome, named).not.toBe(decideIn(policy, decided, world).outcome);
            confirmed++;
          }
          continue;
        }
        // The rule decides only DNS lookups.
        if (policy.groups.some(({ selectors }) => selectors.length > 0)) continue;
        const places = Array.from(
          { length: 400 },
          () => evaluateLookup(policy, random.pick(packets)().source, random.pick(NAMES)).place,
        );
        const own = { kind: 'rule', group: policy.groups.indexOf(group), rule: group.rules.indexOf(rule) };
        expect(places, named).toContainEqual(own);
      }
  });
  expect(confirmed).toBeGreaterThan(POLICIES);
});

test('after all removals that lint proposes, almost no further rule can be removed', () => {
  let tried = 0;
  let left = 0;
  eachPolicy(13, (policy, { spaces }) => {
    const { findings } = lint(policy, ['unreachable', 'removable'], { spaces });
    const after = editedPolicy(
      policy,
      findings.map(({ edit }) => ({ edit })),
    );
    for (const group of after.groups)
      for (const rule of group.rules) {
        const without = (from: Policy) =>
          withRules(from, group.id, (rules) => rules.filter(({ id }) => id !== rule.id));
        if (!isEqual(policy, without(policy), spaces)) continue;
        tried++;
        // A rule that was looked at early can become removable by a later removal.
        if (isEqual(after, without(after), spaces)) left++;
      }
  });
  expect(tried).toBeGreaterThan(0);
  expect(left).toBeLessThanOrEqual(tried / 2);
});

const rule = (id: string, action: 'allow' | 'deny', match: object, more: object = {}) => ({
  id,
  action,
  match,
  ...more,
});
const group = (id: string, cidr: string, rules: readonly object[], more: object = {}) => ({
  ...{ id, mode: 'enforce', sources: { cidrs: [cidr] }, rules },
  ...more,
});
const policyOf = (groups: readonly object[], defaultPolicy = 'deny'): Policy =>
  modelOf({ default_policy: defaultPolicy, source_groups: groups } as never);
const tcp = (ports: readonly (number | string)[], more: object = {}) => ({ proto: 'tcp', dst_ports: ports, ...more });

/** Returns the check, the rules and the edit of each finding. */
const found = (policy: Policy, checks?: readonly LintCheck[]) =>
  lint(policy, checks).findings.map(({ check, rules, edit, message }) => ({ check, rules, edit, message }));

test('lint finds a deny that the default policy repeats, and nothing if an allow stands behind the deny', () => {
  const removable = {
    check: 'removable',
    rules: ['no-smtp'],
    edit: { edit: 'remove_rule', source_group: 'office', rule: 'no-smtp' },
    message: 'office/no-smtp can be removed: default_policy decides its flows alike',
  };
  expect(found(modelOf(OFFICE))).toEqual([removable]);
  const needed = officeAfter((draft) => {
    draft.source_groups[1]?.rules?.push({ id: 'net', action: 'allow', match: { dst_cidrs: ['10.4.0.0/16'] } });
  });
  expect(found(modelOf(needed), ['unreachable', 'removable', 'mergeable'])).toEqual([]);
});

test('lint finds a rule unreachable if earlier rules of several groups together decide all its flows, and names only the necessary ones', () => {
  const policy = policyOf([
    group('all', '0.0.0.0/0', [
      rule('low', 'deny', tcp(['0-999'])),
      rule('other', 'deny', { proto: 'udp' }),
      rule('some', 'deny', tcp([80])),
    ]),
    group('office', '10.1.0.0/16', [
      rule('high', 'allow', tcp(['1000-65535'])),
      rule('web', 'allow', tcp(['80-8080'])),
    ]),
  ]);
  expect(lint(policy, ['unreachable']).findings).toEqual([
    {
      check: 'unreachable',
      source_group: 'all',
      rules: ['some'],
      message: 'no flow reaches all/some: all/low decides all its flows',
      by: [{ decision: 'deny', mode: 'enforce', source_group: 'all', rule: 'low' }],
      by_omitted: 0,
      edit: { edit: 'remove_rule', source_group: 'all', rule: 'some' },
      diff: { verdict: 'equal', summary: 'every flow is decided alike', complete: true },
      region: null,
    },
    expect.objectContaining({
      rules: ['web'],
      message: 'no flow reaches office/web: all/low and office/high decide all its flows',
    }),
  ]);
});

test('lint finds a group unreachable if a default precedes it, if it has no sources, or if earlier groups decide all its flows', () => {
  const messages = (policy: Policy) =>
    lint(policy, ['unreachable']).findings.map(({ message, rules, edit }) => [message, rules, edit.edit]);
  const to = { dst_cidrs: ['10.9.0.0/16'] };
  const team = group('team', '10.1.2.0/24', [rule('web', 'allow', tcp([80], to)), rule('ssh', 'allow', tcp([22], to))]);
  const site = (rules: readonly object[], more: object = {}) => group('site', '10.0.0.0/8', rules, more);
  expect(messages(policyOf([site([], { default_action: 'deny' }), team]))).toEqual([
    ['no flow reaches the group team: the default of site decides all its flows', [], 'remove_group'],
  ]);
  expect(messages(policyOf([site([rule('all', 'deny', {})]), { ...team, default_action: 'deny' }]))).toEqual([
    ['no flow reaches the group team: site/all decides all its flows', [], 'remove_group'],
  ]);
  expect(
    messages(policyOf([site([rule('tcp', 'deny', { proto: 'tcp' })]), { ...team, default_action: 'allow' }])),
  ).toEqual([
    ['no flow reaches team/web: site/tcp decides all its flows', ['web'], 'remove_rule'],
    ['no flow reaches team/ssh: site/tcp decides all its flows', ['ssh'], 'remove_rule'],
  ]);
  expect(messages(policyOf([{ ...team, sources: { cidrs: [] } }]))).toEqual([
    ['no flow can match the group team', [], 'remove_group'],
  ]);
});

test.each<[why: string, first: object, second: object]>([
  [
    'inspects the flows',
    rule('a', 'allow', tcp([443], { tls: { mode: 'metadata', sni: ['a.example'] } })),
    rule('b', 'allow', tcp([443])),
  ],
  [
    'decides the lookups of a name',
    rule('a', 'allow', tcp([443], { dns_hostname: 'a.example' })),
    rule('b', 'allow', tcp([443], { dst_cidrs: ['0.0.0.0/1', '128.0.0.0/1'] })),
  ],
  ['is in the mode audit', rule('a', 'allow', tcp([443]), { mode: 'audit' }), rule('b', 'allow', tcp(['400-500']))],
  [
    'stands before a rule that matches only some of its flows',
    rule('a', 'allow', tcp([443])),
    rule('b', 'allow', tcp(['443-500'], { src_ports: ['1024-65535'] })),
  ],
])('a rule that %s is not removable', (_why, first, second) => {
  expect(found(policyOf([group('g', '10.0.0.0/8', [first, second])]), ['unreachable', 'removable'])).toEqual([]);
});

test('of two rules that can each be removed while the other stays, lint proposes to remove one', () => {
  const policy = policyOf([
    group('g', '10.0.0.0/8', [
      rule('a', 'allow', tcp(['1-10'])),
      rule('b', 'allow', tcp(['5-20'])),
      rule('c', 'allow', tcp(['1-4', '11-30'])),
    ]),
  ]);
  const without = (id: string) => withRules(policy, 'g', (rules) => rules.filter((one) => one.id !== id));
  expect(['a', 'b', 'c'].map((id) => isEqual(policy, without(id)))).toEqual([true, true, false]);
  expect(found(policy, ['removable']).map(({ rules }) => rules)).toEqual([['a']]);
});

test('lint finds a rule for selected sources unreachable after a default for the same selector, but not after a default for another selector', () => {
  const selected = (app: string) => ({
    sources: { kubernetes: [{ integration: 'prod', pod_selector: { match_labels: { app } } }] },
  });
  const first = group('first', '', [], { ...selected('web'), default_action: 'deny' });
  const to = tcp([80], { dst_cidrs: ['10.9.0.0/16'] });
  const second = (app: string) => group('second', '', [rule('web', 'allow', to)], selected(app));
  const messages = (app: string) =>
    found(policyOf([first, second(app)]), ['unreachable']).map(({ message }) => message);
  expect(messages('web')).toEqual(['no flow reaches the group second: the default of first decides all its flows']);
  expect(messages('db')).toEqual([]);
});

test('lint does not propose to remove a rule if it also proposes to remove the group with the default that would decide instead', () => {
  const policy = policyOf(
    [
      group('all', '0.0.0.0/0', [rule('deny', 'deny', {})]),
      group('team', '0.0.0.0/0', [rule('web', 'allow', tcp([80]))], { default_action: 'deny' }),
    ],
    'allow',
  );
  expect(found(policy, ['removable']).map(({ rules }) => rules)).toEqual([]);
  const behind = policyOf(
    [group('all', '0.0.0.0/0', [rule('deny', 'deny', {})]), group('team', '0.0.0.0/0', [], { default_action: 'deny' })],
    'allow',
  );
  expect(found(behind).map(({ check, edit }) => [check, edit.edit])).toEqual([['unreachable', 'remove_group']]);
  expect(found(behind, ['removable']).map(({ edit }) => edit)).toEqual([
    { edit: 'remove_rule', source_group: 'all', rule: 'deny' },
  ]);
});

test.each<[field: string, first: object, second: object, match: object]>([
  ['adjacent ports', tcp([80]), tcp([81]), { dst_ports: ['80-81'] }],
  ['ports', tcp([80, 443]), tcp([8080]), { dst_ports: [80, 443, 8080] }],
  ['source ports', tcp([22], { src_ports: [1] }), tcp([22], { src_ports: ['3-4'] }), { src_ports: [1, '3-4'] }],
  [
    'adjacent networks',
    tcp([80], { dst_cidrs: ['10.0.0.0/24'] }),
    tcp([80], { dst_cidrs: ['10.0.1.0/24', '10.9.0.0/16'] }),
    { dst_cidrs: ['10.0.0.0/23', '10.9.0.0/16'] },
  ],
  [
    'ICMP types',
    { proto: 'icmp', icmp_types: [8] },
    { proto: 'icmp', icmp_types: [0, 13] },
    { icmp_types: [0, 8, 13] },
  ],
  [
    'ICMP codes',
    { proto: 'icmp', icmp_types: [3], icmp_codes: [4] },
    { proto: 'icmp', icmp_types: [3], icmp_codes: [1] },
    { icmp_codes: [1, 4] },
  ],
])('two rules that differ only in %s are mergeable', (_field, first, second, match) => {
  const policy = policyOf([
    group('g', '10.0.0.0/8', [
      rule('a', 'allow', first),
      rule('between', 'allow', { proto: 47 }),
      rule('b', 'allow', second),
    ]),
  ]);
  expect(found(policy)).toEqual([
    {
      check: 'mergeable',
      rules: ['a', 'b'],
      edit: { edit: 'replace_rule', source_group: 'g', rule: 'a', match, remove: ['b'] },
      message: `g/a and g/b can be one rule with more ${Object.keys(match)[0] ?? ''}`,
    },
  ]);
});

test.each<[why: string, rules: readonly object[]]>([
  [
    'a deny stands between them',
    [rule('a', 'allow', tcp([80])), rule('no', 'deny', { dst_cidrs: ['10.9.0.0/16'] }), rule('b', 'allow', tcp([443]))],
  ],
  [
    'they differ in two fields',
    [rule('a', 'allow', tcp([80])), rule('b', 'allow', { proto: 'udp', dst_ports: [443] })],
  ],
  ['they differ in the mode', [rule('a', 'allow', tcp([80])), rule('b', 'allow', tcp([443]), { mode: 'audit' })]],
  [
    'they differ in the TLS block',
    [
      rule('a', 'allow', tcp([80], { tls: { sni: ['a.example'] } })),
      rule('b', 'allow', tcp([443], { tls: { sni: ['b.example'] } })),
    ],
  ],
  [
    'the merged rule would decide lookups',
    [
      rule('a', 'deny', { dst_cidrs: ['0.0.0.0/1'] }),
      rule('b', 'deny', { dst_cidrs: ['128.0.0.0/1'] }),
      rule('names', 'allow', { proto: 47 }),
    ],
  ],
])('two rules are not mergeable if %s', (_why, rules) => {
  expect(found(policyOf([group('g', '10.0.0.0/8', rules)], 'allow'), ['mergeable'])).toEqual([]);
});

test('an allow and a deny of a group that cover common flows in part are in conflict, with the flows that their order decides', () => {
  const policy = policyOf([
    group('g', '10.0.0.0/8', [
      rule('no-net', 'deny', { dst_cidrs: ['192.168.0.0/16'] }),
      rule('between', 'allow', { proto: 47 }),
      rule('web', 'allow', tcp([443])),
    ]),
  ]);
  const [gre, web, ...more] = lint(policy, ['conflict']).findings;
  expect([gre?.rules, web?.rules, more]).toEqual([['no-net', 'between'], ['no-net', 'web'], []]);
  expect(web).toEqual({
    check: 'conflict',
    source_group: 'g',
    rules: ['no-net', 'web'],
    message: 'g/no-net (deny) decides flows that g/web (allow) matches too: the order matters',
    by: [],
    by_omitted: 0,
    edit: { edit: 'move_rule', source_group: 'g', rule: 'web', before: 'no-net' },
    diff: {
      verdict: 'opens',
      summary: '16,777,216 sources of g gain 192.168.0.0/16 tcp/443; no source loses a flow',
      complete: true,
    },
    region: {
      sources: { networks: ['10.0.0.0/8'], except: [], omitted: 0, addresses: '16777216' },
      destinations: { networks: ['192.168.0.0/16'], except: [], omitted: 0, addresses: '65536' },
      services: { services: ['tcp/443'], except: [], omitted: 0 },
      source_ports: [],
      conditions: [],
      unless: [],
      flows: String(2n ** 56n),
      example: { src: '10.0.0.1', dst: '192.168.0.1', proto: 6, src_port: 40_000, dst_port: 443 },
    },
  });
});

const office = (rules: readonly object[], more: object = {}) =>
  dualModelOf({
    default_policy: 'deny',
    source_groups: [
      {
        ...{ id: 'g', mode: 'enforce', sources: { cidrs: ['10.0.0.0/8', '2001:db8::/32'] }, rules },
        ...more,
      },
    ],
  } as never);
/** Returns the check, the rules and the matchers of each finding about both families. */
const foundInBoth = (policy: Policy) =>
  lint(policy, LINT_CHECKS, { spaces: BOTH }).findings.map(({ check, rules, edit }) => [
    check,
    rules.join(),
    'match' in edit ? edit.match : null,
  ]);

test.each<[what: string, rules: readonly object[], findings: unknown[]]>([
  [
    'a rule that earlier rules cover only in IPv4 stays',
    [rule('a', 'allow', tcp([80], { dst_cidrs: ['0.0.0.0/0'] })), rule('b', 'allow', tcp([80]))],
    [['removable', 'a', null]],
  ],
  [
    'a rule that earlier rules cover in both families is unreachable',
    [
      rule('a', 'allow', tcp([80], { dst_cidrs: ['0.0.0.0/0'] })),
      rule('b', 'allow', tcp([80], { dst_cidrs: ['::/1'] })),
      rule('c', 'allow', tcp([80], { dst_cidrs: ['8000::/1'] })),
      rule('d', 'deny', tcp([80])),
      rule('e', 'allow', { proto: 47 }),
    ],
    // A rule for all addresses of a family admits lookups, and b and c admit none. So no rules are mergeable.
    [['unreachable', 'd', null]],
  ],
  [
    'a deny in front of an allow for one family is needed',
    [rule('no', 'deny', tcp([25])), rule('six', 'allow', { dst_cidrs: ['2001:db8:1::/48'] })],
    [['conflict', 'no,six', null]],
  ],
  [
    'rules for networks of both families are mergeable',
    [
      rule('four', 'allow', tcp([443], { dst_cidrs: ['10.1.0.0/16'] })),
      rule('six', 'allow', tcp([443], { dst_cidrs: ['2001:db8:1::/49', '2001:db8:1:8000::/49'] })),
    ],
    [['mergeable', 'four,six', { dst_cidrs: ['10.1.0.0/16', '2001:db8:1::/48'] }]],
  ],
  [
    'a rule of one family behind a rule of the other is reached',
    [rule('four', 'deny', { dst_cidrs: ['0.0.0.0/0'] }), rule('six', 'allow', tcp([22], { dst_cidrs: ['::/0'] }))],
    [['removable', 'four', null]],
  ],
  [
    'ICMPv6 types are mergeable',
    [
      rule('a', 'allow', { proto: 'icmpv6', icmp_types: [128] }),
      rule('b', 'allow', { proto: 'icmpv6', icmp_types: [1, 2] }),
    ],
    [['mergeable', 'a,b', { icmp_types: [1, 2, 128] }]],
  ],
])('lint looks at the flows of both families: %s', (_what, rules, findings) => {
  expect(foundInBoth(office(rules))).toEqual(findings);
});

test('lint proposes to remove no group whose rules only IPv6 flows reach', () => {
  const first = { id: 'first', mode: 'enforce', sources: { cidrs: ['10.0.0.0/8'] }, default_action: 'deny' };
  const second = {
    ...{ id: 'second', mode: 'enforce', sources: { cidrs: ['10.1.0.0/16', '2001:db8::/32'] } },
    rules: [rule('web', 'allow', tcp([80]))],
  };
  const policy = dualModelOf({ default_policy: 'deny', source_groups: [first, second] } as never);
  expect(lint(policy, ['unreachable'], { spaces: BOTH }).findings).toEqual([]);
  expect(lint(policy, ['unreachable']).findings.map(({ edit }) => edit)).toEqual([
    { edit: 'remove_group', source_group: 'second' },
  ]);
  // A node that enforces no IPv6 policies proposes no edit that changes IPv6 flows either.
  const answer = analyse([policy], { kind: 'lint', checks: ['unreachable'], limit: 50 }, false);
  expect(answer).toMatchObject({ lint: { findings: [], complete: true } });
});

test('lint reports no conflict between a rule and its exceptions, or between rules without common flows that reach them', () => {
  const exception = policyOf([
    group('g', '10.0.0.0/8', [
      rule('but', 'allow', tcp([22], { dst_cidrs: ['10.9.0.0/16'] })),
      rule('no-ssh', 'deny', tcp([22])),
    ]),
  ]);
  const covered = policyOf([
    group('all', '0.0.0.0/0', [rule('first', 'deny', tcp([443], { dst_cidrs: ['192.168.0.0/16'] }))]),
    group('g', '10.0.0.0/8', [
      rule('no-net', 'deny', { dst_cidrs: ['192.168.0.0/16'] }),
      rule('web', 'allow', tcp([443])),
    ]),
  ]);
  expect([exception, covered].map((policy) => found(policy, ['conflict']))).toEqual([[], []]);
});

test('lint counts the findings that it does not list, and its other edits together still change no flow', () => {
  const rules = Array.from({ length: 6 }, (_, at) => rule(`r${at}`, 'deny', tcp([at])));
  const { findings, omitted, summary, together } = lint(policyOf([group('g', '10.0.0.0/8', rules)]), ['removable'], {
    limit: 2,
  });
  expect([findings.length, omitted.removable, summary]).toEqual([2, 4, 'found: 6 removable']);
  expect(together).toEqual({ verdict: 'equal', summary: 'every flow is decided alike', complete: true, edits: 2 });
});

test('lint lists the groups that it has not checked if it reaches the limit of steps', () => {
  const answer = lintPolicy(modelOf(OFFICE), { spaces: [IPV4], checks: ['removable'], limit: 5, steps: 40 });
  expect(answer).toMatchObject({
    complete: false,
    left: [
      { check: 'unreachable', omitted: 0 },
      { check: 'removable', omitted: 0 },
    ],
    summary: expect.stringMatching(/; the lint is not complete$/) as string,
  });
  expect(answer.left[1]?.source_groups.at(-1)).toBe('servers');
});
