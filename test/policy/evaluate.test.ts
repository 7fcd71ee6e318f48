import { describe, expect, test } from 'vitest';
import { NO_SELECTORS } from '#contracts/kubernetes/membership.js';
import {
  type Action,
  type Grants,
  type Group,
  noGrants,
  type Packet,
  type Policy,
  type Rule,
} from '#contracts/policy/policy-model.js';
import { packetAt } from '#contracts/policy/proof-types.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { compile } from '#policy/compile/compile.js';
import { classify } from '#policy/evaluate/classify.js';
import { StepFinder } from '#policy/evaluate/connection/connection-steps.js';
import { type Decision, evaluate } from '#policy/evaluate/evaluate.js';
import { evaluateLookup } from '#policy/evaluate/lookup/evaluate-lookup.js';
import { LookupIndex } from '#policy/evaluate/lookup/lookup-index.js';
import { sampleOf } from '#policy/proof/proof-sample.js';
import { group, icmp, ipv6Packet, packet, policy, rule, selector } from '#test/policy/sample.js';
import { wireNameOf } from '#test/policy/wire-name.js';

const API = { kind: 'exact', labels: ['api', 'example', 'com'], text: 'api.example.com' } as const;

/**
 * Returns the decision of the reference evaluator, and fails the test if the compiled program gives another
 * verdict word.
 */
function decide(given: Policy, tried: Packet) {
  const decision = evaluate(given, tried);
  expect(classify(compile(given, { ipv6: true }), tried)).toBe(wordOf(decision));
  return decision;
}

function wordOf({ rank, verdict, audited }: Pick<Decision, 'rank' | 'verdict' | 'audited'>): number {
  return verdictWord(rank, verdict, audited);
}

const byRule = (group: number, rule: number): Decision['place'] => ({ kind: 'rule', group, rule });
const byDefaultOf = (group: number): Decision['place'] => ({ kind: 'group_default', group });

function matches(given: Rule, tried: Packet): boolean {
  return decide(policy([group(['0.0.0.0/0', '::/0'], [given])]), tried).place.kind === 'rule';
}

describe('the reference evaluator', () => {
  test('the reference evaluator returns the first rule that matches the packet', () => {
    const given = policy([
      group(['10.0.0.0/8'], [rule({ protocol: 17 }), rule({ action: 'deny', ports: ['443'] }), rule()]),
    ]);
    expect(decide(given, packet())).toEqual({ rank: 1, place: byRule(0, 1), verdict: 'deny', audited: false });
  });

  test('a rule without destinations matches packets of both families, and a rule with destinations only packets of their families', () => {
    const rules: readonly (readonly [Rule, boolean, boolean])[] = [
      [rule(), true, true],
      [rule({ to: ['192.0.2.0/24'] }), true, false],
      [rule({ to: ['2001:db8:1::/48'] }), false, true],
      [rule({ to: ['192.0.2.0/24', '2001:db8:1::/48'] }), true, true],
      [rule({ to: ['0.0.0.0/0'] }), true, false],
      [rule({ to: ['::/0'] }), false, true],
      [rule({ to: ['2001:db8:1::2', '2001:db8:2::/48', '192.0.2.2'] }), false, false],
    ];
    for (const [given, ipv4, ipv6] of rules)
      expect([given.destinations, matches(given, packet()), matches(given, ipv6Packet())]).toEqual([
        given.destinations,
        ipv4,
        ipv6,
      ]);
  });

  test('a group applies to no source of an IP family if it lists no source of this family', () => {
    const given = (...sources: string[]) => policy([group(sources, [rule()], { defaultAction: 'allow' })]);
    expect(decide(given('0.0.0.0/0'), ipv6Packet()).place).toEqual({ kind: 'policy_default' });
    expect(decide(given('::/0'), packet()).place).toEqual({ kind: 'policy_default' });
    expect(decide(given('2001:db8::/64'), ipv6Packet()).place).toEqual(byRule(0, 0));
    expect(decide(given('2001:db8::/64'), ipv6Packet({ source: '2001:db8:0:1::1' })).place).toEqual({
      kind: 'policy_default',
    });
    expect(decide(given('2001:db8::1'), ipv6Packet({ source: '2001:db8::2' })).place).toEqual({
      kind: 'policy_default',
    });
  });

  test('a rule has the same rank (position in the policy) for IPv4 and IPv6 packets, also if earlier rules apply to one family only', () => {
    const given = policy([
      group(
        ['10.0.0.0/8', '2001:db8::/32'],
        [
          rule({ to: ['198.51.100.0/24'] }),
          rule({ to: ['2001:db8:ffff::/48'] }),
          rule({ ports: ['443'], action: 'deny' }),
        ],
      ),
    ]);
    expect([packet(), ipv6Packet()].map((tried) => decide(given, tried).rank)).toEqual([2, 2]);
  });

  test('the reference evaluator skips groups without the source, and counts the rules and defaults of these groups in the rank (place in the order)', () => {
    const given = policy([
      group(['10.0.0.2'], [rule(), rule()], { defaultAction: 'allow' }),
      group(['10.0.0.1'], [rule({ action: 'deny' })]),
    ]);
    expect(decide(given, packet())).toEqual({ rank: 3, place: byRule(1, 0), verdict: 'deny', audited: false });
  });

  test('the reference evaluator continues with the next group if no rule matches and the group has no default action', () => {
    const given = policy([
      group(['10.0.0.0/8'], [rule({ protocol: 17 })]),
      group(['10.0.0.1', '10.0.0.0/8'], [], {}),
      group(['10.0.0.1'], [rule({ protocol: 6 })]),
    ]);
    expect(decide(given, packet()).place).toEqual(byRule(2, 0));
  });

  test('the reference evaluator returns the default action of a group as decision, even if the group has no rules', () => {
    const given = policy([
      group(['10.0.0.1'], [], { defaultAction: 'allow' }),
      group(['10.0.0.1'], [rule({ action: 'deny' })]),
    ]);
    expect(decide(given, packet())).toEqual({ rank: 0, place: byDefaultOf(0), verdict: 'allow', audited: false });
  });

  test('the reference evaluator returns the default of the policy, in the mode of the default, if no group decides the packet', () => {
    expect(decide(policy([group(['10.0.0.2'], [rule()])], { mode: 'audit' }), packet())).toEqual({
      rank: 1,
      place: { kind: 'policy_default' },
      verdict: 'audit',
      audited: true,
    });
  });

  describe('a group with an unresolved selector', () => {
    const deny = rule({ action: 'deny', ports: ['443'] });
    const other = packet({ destinationPort: 80 });
    const elsewhere = packet({ source: '172.16.0.1' });
    const all = group(['0.0.0.0/0'], [rule()]);
    const pods = (rules: readonly Rule[], given: Partial<Group> = {}, sources: readonly string[] = []) =>
      policy([group(sources, rules, { selectors: [selector('web')], ...given }), all]);
    const byAll = byRule(1, 0);

    test.each<[string, Policy, Packet<number>, Decision['place'], Decision['verdict']]>([
      ['skips an allow rule', pods([rule()]), packet(), byAll, 'allow'],
      ['skips a default action allow', pods([], { defaultAction: 'allow' }), packet(), byAll, 'allow'],
      ['applies a deny rule to every source', pods([rule(), deny]), packet(), byRule(0, 1), 'deny'],
      ['does not apply a deny rule to a packet that the rule does not match', pods([deny]), other, byAll, 'allow'],
      [
        'applies a default action deny to every source',
        pods([rule()], { defaultAction: 'deny' }),
        packet(),
        byDefaultOf(0),
        'deny',
      ],
      [
        'gives the verdict audit if the deny rule is in audit mode',
        pods([{ ...deny, mode: 'audit' }]),
        packet(),
        byRule(0, 0),
        'audit',
      ],
      [
        'gives the verdict audit for the default action deny if the group is in audit mode',
        pods([], { mode: 'audit', defaultAction: 'deny' }),
        packet(),
        byDefaultOf(0),
        'audit',
      ],
      [
        'gives the verdict redirect for a deny rule with a TLS block',
        pods([rule({ tls: {} }), rule({ action: 'deny', tls: {} })]),
        packet(),
        byRule(0, 1),
        'redirect',
      ],
      [
        'applies an allow rule to the static sources of the group',
        pods([rule(), deny], {}, ['10.0.0.0/8']),
        packet(),
        byRule(0, 0),
        'allow',
      ],
      [
        'applies to a static source the first rule that matches',
        pods([deny, rule()], {}, ['10.0.0.0/8']),
        packet(),
        byRule(0, 0),
        'deny',
      ],
      [
        'applies a deny rule to sources other than the static sources',
        pods([rule(), deny], {}, ['10.0.0.0/8']),
        elsewhere,
        byRule(0, 1),
        'deny',
      ],
      [
        'applies neither an allow rule nor a default action allow to sources other than the static sources',
        pods([rule()], { defaultAction: 'allow' }, ['10.0.0.0/8']),
        elsewhere,
        byAll,
        'allow',
      ],
    ])(
      'for a group with an unresolved selector, the reference evaluator %s, like the compiled program',
      (_, given, tried, place, verdict) => {
        expect(decide(given, tried)).toMatchObject({ place, verdict });
        const steps = new StepFinder({ policy: given, program: null, generation: 1, scope: NO_SELECTORS }).stepsOf(
          tried,
          noGrants,
        );
        expect(steps[0]?.decider).toMatchObject({ kind: place.kind });
        const sample = sampleOf(given);
        expect(sample.complete).toBe(true);
        expect(Array.from(sample.expected)).toEqual(
          Array.from(sample.expected, (__, at) => wordOf(evaluate(given, packetAt(sample, at)))),
        );
      },
    );

    test('the reference evaluator applies a deny rule with an unresolved selector to all DNS queries, and an allow rule to none', () => {
      const named = (action: Action) => rule({ action, hostname: API });
      const placeOf = (rules: readonly Rule[]) => {
        const given = pods(rules);
        const { place, ...decided } = evaluateLookup(given, packet().source, API.text);
        const index = new LookupIndex(compile(given).lookups);
        expect(index.decide(packet().source, wireNameOf(API.text))).toBe(wordOf(decided));
        return place;
      };
      expect(placeOf([named('allow'), named('deny')])).toEqual(byRule(0, 1));
      expect(placeOf([rule({ action: 'deny' })])).toEqual(byRule(0, 0));
      expect(placeOf([named('allow'), rule()])).toEqual(byAll);
    });
  });
});

describe('the mode of a rule or default', () => {
  test('a deny rule in audit mode gives the verdict audit', () => {
    const given = policy([group(['10.0.0.1'], [rule({ action: 'deny', mode: 'audit' }), rule()])]);
    expect(decide(given, packet())).toEqual({ rank: 0, place: byRule(0, 0), verdict: 'audit', audited: true });
  });

  test('an allow rule in audit mode gives the verdict allow, and sets the audit bit', () => {
    const given = policy([group(['10.0.0.1'], [rule({ mode: 'audit' })])]);
    expect(decide(given, packet())).toEqual({ rank: 0, place: byRule(0, 0), verdict: 'allow', audited: true });
  });

  test('the default action deny of a group in audit mode gives the verdict audit', () => {
    const given = policy([group(['10.0.0.1'], [], { mode: 'audit', defaultAction: 'deny' })]);
    expect(decide(given, packet()).verdict).toBe('audit');
  });
});

describe('a rule of the reference evaluator', () => {
  test.each(['0.0.0.0', '192.0.2.1', '255.255.255.255'])(
    'a rule of the reference evaluator for 0.0.0.0/0 matches destination %s',
    (destination) => {
      expect(matches(rule({ to: ['0.0.0.0/0'] }), packet({ destination }))).toBe(true);
    },
  );

  test.each([
    ['192.0.1.255', false],
    ['192.0.2.0', true],
    ['192.0.2.255', true],
    ['192.0.3.0', false],
    ['255.255.255.254', false],
    ['255.255.255.255', true],
    ['0.0.0.0', true],
    ['0.0.0.1', false],
  ])(
    'a rule of the reference evaluator with prefixes and addresses matches destination %s (expected: %s)',
    (destination, wanted) => {
      const given = rule({ to: ['192.0.2.0/24', '255.255.255.255', '0.0.0.0'] });
      expect(matches(given, packet({ destination }))).toBe(wanted);
    },
  );

  test.each([
    ['10.0.0.255', false],
    ['10.0.1.0', true],
    ['10.0.1.255', true],
    ['10.0.2.0', false],
    ['255.255.255.255', true],
  ])(
    'a rule of the reference evaluator applies to source %s if the prefixes of its group contain the source (expected: %s)',
    (source, wanted) => {
      const given = policy([group(['10.0.1.0/24', '255.255.255.255'], [rule()])]);
      expect(decide(given, packet({ source })).place.kind === 'rule').toBe(wanted);
    },
  );

  test.each([6, 17, 33, 132, 136])(
    'a rule of the reference evaluator with ports matches protocol %i, which has ports',
    (protocol) => {
      expect(matches(rule({ ports: ['443'] }), packet({ protocol }))).toBe(true);
      expect(matches(rule({ from: ['40000'] }), packet({ protocol }))).toBe(true);
    },
  );

  test.each([0, 1, 2, 47, 50, 255])(
    'a rule of the reference evaluator with ports does not match protocol %i, which has no ports',
    (protocol) => {
      const bare = packet({ protocol, sourcePort: 0, destinationPort: 0 });
      expect(matches(rule({ ports: ['0-65535'] }), bare)).toBe(false);
      expect(matches(rule({ from: ['0-65535'] }), bare)).toBe(false);
      expect(matches(rule({ protocol, ports: ['0'] }), bare)).toBe(false);
      expect(matches(rule({ protocol }), bare)).toBe(true);
    },
  );

  test.each([
    [0, true],
    [1, false],
    [79, false],
    [80, true],
    [90, true],
    [91, false],
    [65_534, false],
    [65_535, true],
  ])(
    'a rule of the reference evaluator with port ranges matches source port or destination port %i (expected: %s)',
    (port, wanted) => {
      const ports = ['0', '80-90', '65535'];
      expect(matches(rule({ ports }), packet({ destinationPort: port }))).toBe(wanted);
      expect(matches(rule({ from: ports }), packet({ sourcePort: port }))).toBe(wanted);
    },
  );

  test('a rule of the reference evaluator with source ports and destination ports matches only if both ports of the packet match', () => {
    const given = rule({ from: ['1000'], ports: ['443'] });
    expect(matches(given, packet({ sourcePort: 1000 }))).toBe(true);
    expect(matches(given, packet({ sourcePort: 1001 }))).toBe(false);
    expect(matches(given, packet({ sourcePort: 1000, destinationPort: 444 }))).toBe(false);
  });

  test('a rule of the reference evaluator with ICMP types and ICMP codes matches any combination of a listed type and a listed code', () => {
    const given = rule({ protocol: 1, icmpTypes: [3, 11], icmpCodes: [0, 4] });
    expect(matches(given, icmp(11, 4))).toBe(true);
    expect(matches(given, icmp(3, 1))).toBe(false);
    expect(matches(given, icmp(8, 0))).toBe(false);
    expect(matches(rule({ icmpCodes: [4] }), icmp(200, 4))).toBe(true);
    expect(matches(rule({ icmpTypes: [8] }), icmp(8, 255))).toBe(true);
  });

  test('a rule of the reference evaluator with ICMP types does not match UDP', () => {
    expect(matches(rule({ icmpTypes: [0], icmpCodes: [0] }), packet({ protocol: 17, destinationPort: 0 }))).toBe(false);
  });

  test('a rule of the reference evaluator without matchers matches every protocol from 0 to 255', () => {
    for (let protocol = 0; protocol < 256; protocol++) {
      expect(matches(rule(), packet({ protocol, sourcePort: 0, destinationPort: 0 }))).toBe(true);
    }
    expect(matches(rule(), icmp(255, 255))).toBe(true);
  });

  test('a rule of the reference evaluator with a TLS block redirects TCP packets and matches no UDP packet', () => {
    const given = policy([group(['10.0.0.1'], [rule({ tls: {}, action: 'deny', mode: 'audit' })])]);
    expect(decide(given, packet())).toEqual({ rank: 0, place: byRule(0, 0), verdict: 'redirect', audited: true });
    expect(decide(given, packet({ protocol: 17 })).place).toEqual({ kind: 'policy_default' });
  });

  test('a rule of the reference evaluator with a hostname matches an address granted for the hostname, if its other matchers match too', () => {
    const given = policy([group(['10.0.0.1'], [rule({ hostname: API, ports: ['443'], to: ['192.0.2.0/24'] })])]);
    const grants: Grants = { has: (pattern, address) => pattern.text === API.text && Number(address) % 256 === 1 };
    const placeOf = (tried: Packet<number>) => evaluate(given, tried, grants).place.kind;
    expect(placeOf(packet())).toBe('rule');
    expect(placeOf(packet({ destination: '192.0.2.2' }))).toBe('policy_default');
    expect(placeOf(packet({ destination: '192.0.3.1' }))).toBe('policy_default');
    expect(placeOf(packet({ destinationPort: 80 }))).toBe('policy_default');
    expect(evaluate(given, packet()).place.kind).toBe('policy_default');
  });
});
