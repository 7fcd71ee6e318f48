import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { LookupTables } from '#contracts/dns/dns-lookup-tables.js';
import type { Action, Group, HostnamePattern, Mode, Policy, Prefix, Rule } from '#contracts/policy/policy-model.js';
import type { Decider } from '#contracts/policy/rule-names.js';
import { rankOf, verdictWord } from '#contracts/policy/verdict-word.js';
import { compile } from '#policy/compile/compile.js';
import { CompileMemory } from '#policy/compile/compile-memory.js';
import { evaluateLookup } from '#policy/evaluate/lookup/evaluate-lookup.js';
import { LookupIndex } from '#policy/evaluate/lookup/lookup-index.js';
import { wordText } from '#policy/explain/listing.js';
import { matchesHostname, parseHostname } from '#policy/model/names/hostname.js';
import { deciderAt } from '#policy/model/rules/rule-names.js';
import { expectEqual } from '#test/expect-equal.js';
import { address, group, policy, rule, selector } from '#test/policy/sample.js';
import { wireName, wireNameOf } from '#test/policy/wire-name.js';

function pattern(text: string): HostnamePattern {
  const parsed = parseHostname(text);
  if (!('pattern' in parsed)) throw new Error(parsed.fault);
  return parsed.pattern;
}

const SELECTORS = ['web', 'db', 'api'].map(selector);
const action = fc.constantFrom<Action>('allow', 'deny');
const mode = fc.constantFrom<Mode>('audit', 'enforce');
const label = fc.constantFrom('a', 'b', 'ab', 'example', 'com', 'x-1', '_srv');
const nameText = fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join('.'));
const hostname = fc
  .oneof(
    { weight: 4, arbitrary: nameText },
    { weight: 4, arbitrary: nameText.map((name) => `*.${name}`) },
    { weight: 1, arbitrary: fc.constant('*') },
    {
      weight: 2,
      arbitrary: fc.constantFrom(
        '^(a|b)+\\.com$',
        '^$',
        'EXAMPLE$',
        '\\\\',
        '[^a-z.]',
        'x-[0-9]+\\.',
        '^a\\.b$',
        '\\bab\\b',
        'é',
      ),
    },
  )
  .map(pattern);
const destination = fc.constantFrom<Prefix>(
  { address: 0, length: 0 },
  { address: 0xc000_0200, length: 24 },
  { address: 0n, length: 0 },
  { address: 0x2001_0db8n << 96n, length: 32 },
);
const port = fc.constantFrom({ low: 53, high: 53 }, { low: 443, high: 443 }, { low: 0, high: 100 });
const seldom = <T>(arbitrary: fc.Arbitrary<T>) =>
  fc.oneof({ weight: 6, arbitrary: fc.constant<T[]>([]) }, { weight: 1, arbitrary: arbitrary.map((one) => [one]) });
const rules = fc.record<Rule>({
  id: fc.constant('rule'),
  pointer: fc.constant('/rules/0'),
  action,
  mode,
  destinations: fc.oneof(
    { weight: 4, arbitrary: fc.constant([]) },
    { weight: 1, arbitrary: fc.uniqueArray(destination, { minLength: 1, maxLength: 2 }) },
  ),
  hostname: fc.oneof({ weight: 5, arbitrary: hostname }, { weight: 1, arbitrary: fc.constant(undefined) }),
  protocol: fc.oneof(
    { weight: 3, arbitrary: fc.constant('any' as const) },
    { weight: 1, arbitrary: fc.constantFrom(1, 6, 17, 132) },
  ),
  sourcePorts: seldom(port),
  destinationPorts: seldom(port),
  icmpTypes: seldom(fc.constant(8)),
  icmpCodes: seldom(fc.constant(0)),
  tls: fc.oneof({ weight: 8, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: fc.constant({}) }),
});
const prefixes = ['0.0.0.0/0', '10.0.0.0/8', '10.1.0.0/16', '10.1.2.0/24', '10.1.2.3/32', '192.0.2.0/25'];
const groups = fc.record<Group>({
  id: fc.constant('group'),
  pointer: fc.constant('/source_groups/0'),
  mode,
  sources: fc.array(fc.constantFrom(...prefixes), { maxLength: 3 }).map((texts) => group(texts, []).sources),
  selectors: fc.subarray(SELECTORS),
  rules: fc.array(rules, { maxLength: 6 }),
  defaultAction: fc.oneof({ weight: 4, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: action }),
});
const policies = fc.record<Policy>({
  groups: fc.array(groups, { maxLength: 8 }),
  default: fc.record({ action, mode, from: fc.constant('default_policy' as const) }),
});
const sources = fc.constantFrom(
  ...['0.0.0.0', '10.0.0.1', '10.1.0.1', '10.1.2.1', '10.1.2.3', '192.0.2.1', '192.0.2.200', '255.255.255.255'].map(
    address,
  ),
);
const latin1 = fc.string({ unit: fc.integer({ min: 0, max: 255 }).map((byte) => String.fromCharCode(byte)) });
const anyLabel = latin1
  .filter((text) => text.length > 0 && text.length <= 63)
  .map((text) => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase()));
const names = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: label },
    { weight: 1, arbitrary: fc.constantFrom('a.b', '.', 'b.com', '\\', 'é') },
    { weight: 1, arbitrary: anyLabel },
  ),
  { maxLength: 5 },
);

function patternsOf({ groups: all }: Policy): readonly HostnamePattern[] {
  const found = new Map<string, HostnamePattern>();
  for (const { rules: own } of all) {
    for (const { hostname: one } of own) if (one !== undefined && !found.has(one.text)) found.set(one.text, one);
  }
  return [...found.values()];
}

function decided(given: Policy, source: number, name: string | readonly string[]): number {
  const { rank, verdict, audited } = evaluateLookup(given, source, name);
  return verdictWord(rank, verdict, audited);
}

function indexOf(given: Policy): LookupIndex {
  return new LookupIndex(compile(given).lookups);
}

describe('`LookupIndex`', () => {
  test('`LookupIndex` returns for a DNS query the verdict word of the reference evaluator, for a first query and for a repeated query', () => {
    fc.assert(
      fc.property(policies, fc.array(fc.tuple(sources, names), { minLength: 1, maxLength: 12 }), (given, asked) => {
        const index = indexOf(given);
        for (const [source, labels] of [...asked, ...asked]) {
          expectEqual(index.decide(source, wireName(labels)), decided(given, source, labels));
        }
      }),
      { numRuns: 500 },
    );
  });

  test('`LookupIndex` returns the numbers of the hostname patterns that match a DNS name, in ascending order', () => {
    fc.assert(
      fc.property(policies, fc.array(names, { minLength: 1, maxLength: 12 }), (given, asked) => {
        const program = compile(given);
        expectEqual(program.names, patternsOf(given));
        const index = new LookupIndex(program.lookups);
        for (const labels of [...asked, ...asked]) {
          const wanted = [...program.names.keys()].filter((number) => {
            const one = program.names[number];
            return one !== undefined && matchesHostname(one, labels);
          });
          expectEqual(index.matching(wireName(labels)), wanted);
        }
      }),
      { numRuns: 500 },
    );
  });

  test('`LookupIndex` lets the rules of a group that are all for IPv6 decide lookups, also after the group had other rules', () => {
    const all = (destination: string): Policy =>
      policy([group(['10.0.0.0/8'], [rule({ hostname: pattern('a.test'), to: [destination] })])], { action: 'deny' });
    const memory = new CompileMemory();
    for (const given of ['2001:db8::/32', '192.0.2.0/24', '::/0'].map(all)) {
      const index = new LookupIndex(compile(given, { memory, ipv6: true }).lookups);
      for (const name of ['a.test', 'b.test'])
        expect(index.decide(address('10.0.0.1'), wireNameOf(name))).toBe(decided(given, address('10.0.0.1'), name));
    }
  });

  test('`LookupIndex` throws a RangeError for a key that is not a DNS name in wire format', () => {
    const index = indexOf(policy([group(['0.0.0.0/0'], [rule({ hostname: pattern('a.test') })])]));
    for (const key of ['', 'a.test', '\x01a', '\x05a\0', '\x01a\0\0', `${'\x01a'.repeat(128)}\0`]) {
      expect(() => index.decide(0, key)).toThrow(RangeError);
      expect(() => index.matching(key)).toThrow(RangeError);
    }
  });

  test('`LookupIndex` reads lookup tables that `compile` writes equal with and without a `CompileMemory` of earlier compilations', () => {
    fc.assert(
      fc.property(fc.array(policies, { minLength: 2, maxLength: 5 }), fc.nat(), (given, salt) => {
        const memory = new CompileMemory();
        for (const [step, { groups: all, ...rest }] of given.entries()) {
          const others = given[(step + salt) % given.length]?.groups ?? [];
          for (const one of [all, [...others, ...all], all.slice(1), all.toSpliced(0, 1, ...others.slice(0, 1))]) {
            const changed = { groups: one, ...rest };
            expectEqual(compile(changed, { memory }).lookups, compile(structuredClone(changed)).lookups);
          }
        }
      }),
      { numRuns: 60 },
    );
  });
});

const anyone = ['0.0.0.0/0'];
const api = pattern('api.example.com');
const below = pattern('*.example.com');

describe('a DNS query for api.example.com from 10.0.0.1', () => {
  test.each<[string, readonly Group[], string]>([
    ['is denied by the policy default if there is no group', [], 'deny policy_default'],
    ['is allowed by a rule with the same name', [group(anyone, [rule({ id: 'r', hostname: api })])], 'allow group/r'],
    ['is allowed by the pattern *.example.com', [group(anyone, [rule({ id: 'r', hostname: below })])], 'allow group/r'],
    ['is allowed by the pattern *', [group(anyone, [rule({ id: 'r', hostname: pattern('*') })])], 'allow group/r'],
    ['is allowed by the regex ^API', [group(anyone, [rule({ id: 'r', hostname: pattern('^API') })])], 'allow group/r'],
    [
      'is not decided by a group that does not contain the source',
      [group(['10.0.0.2'], [rule({ hostname: api })])],
      'deny policy_default',
    ],
    ['is not matched by the suffix pattern of the same name', [named('*.api.example.com')], 'deny policy_default'],
    ['is not matched by i.example.com, a suffix of the text only', [named('i.example.com')], 'deny policy_default'],
    [
      'is decided by the first of two rules',
      [group(anyone, [rule({ id: 'a', hostname: below, action: 'deny' }), rule({ id: 'b', hostname: api })])],
      'deny group/a',
    ],
    [
      'is decided by the first of two groups',
      [group(anyone, [rule({ id: 'a', hostname: below })]), group(anyone, [rule({ hostname: api, action: 'deny' })])],
      'allow group/a',
    ],
    [
      'is not decided by a deny rule that has ports',
      [group(anyone, [rule({ hostname: api, action: 'deny', ports: ['80'] }), rule({ id: 'b', hostname: api })])],
      'allow group/b',
    ],
    [
      'is decided by an allow rule for TCP before a rule with the same name',
      [group(anyone, [rule({ id: 'tcp', protocol: 6 }), rule({ hostname: api, action: 'deny' })])],
      'allow group/tcp',
    ],
    [
      'is decided by a rule with the same name before an allow rule for TCP',
      [group(anyone, [rule({ id: 'a', hostname: api, action: 'deny' }), rule({ protocol: 6 })])],
      'deny group/a',
    ],
    [
      'is not decided by a rule with destinations',
      [group(anyone, [rule({ to: ['192.0.2.0/24'] }), rule({ id: 'b', hostname: api })])],
      'allow group/b',
    ],
    [
      'is decided by the default action of an earlier group',
      [group(anyone, [], { defaultAction: 'deny' }), group(anyone, [rule({ hostname: api })])],
      'deny group',
    ],
    [
      'is decided by a rule with the same name before the default action of the group',
      [group(anyone, [rule({ id: 'a', hostname: api })], { defaultAction: 'deny' })],
      'allow group/a',
    ],
    [
      'gets the verdict audit if the deny rule is in audit mode',
      [group(anyone, [rule({ id: 'a', hostname: api, action: 'deny', mode: 'audit' })])],
      'audit audited group/a',
    ],
    [
      'gets the verdict allow without the audit bit from a default action allow in audit mode',
      [group(anyone, [], { defaultAction: 'allow', mode: 'audit' })],
      'allow group',
    ],
    ['is not redirected by a TLS rule', [group(anyone, [rule({ id: 'a', hostname: api, tls: {} })])], 'allow group/a'],
  ])('a DNS query for api.example.com from 10.0.0.1 %s, according to `LookupIndex`', (_statement, all, wanted) => {
    const { lookups, ruleNames } = compile(policy(all));
    const found = new LookupIndex(lookups).decide(address('10.0.0.1'), wireNameOf('api.example.com'));
    expect(decisionText(found, deciderAt(ruleNames, rankOf(found)))).toBe(wanted);
  });
});

function named(text: string): Group {
  return group(anyone, [rule({ hostname: pattern(text) })]);
}

function decisionText(found: number, decider: Decider): string {
  const [, ...verdict] = wordText(found).split(' ');
  const place =
    decider.kind === 'policy_default'
      ? decider.kind
      : decider.kind === 'rule'
        ? `${decider.group}/${decider.rule}`
        : decider.group;
  return [...verdict, place].join(' ');
}

/** Counts the array elements that `LookupIndex` reads from the lookup tables of a program. */
class Reads {
  count = 0;

  of<T extends object>(tables: T): T {
    const entries = Object.entries(tables).map(([key, value]: [string, unknown]) => {
      if (key === 'regexes' || typeof value !== 'object' || value === null) return [key, value];
      return [key, ArrayBuffer.isView(value) ? this.#watched(value) : this.of(value)];
    });
    return Object.fromEntries(entries) as T;
  }

  #watched<T extends object>(array: T): T {
    return new Proxy(array, {
      get: (target, key) => {
        if (typeof key === 'string' && /^\d+$/.test(key)) this.count += 1;
        return Reflect.get(target, key, target) as unknown;
      },
    });
  }
}

/**
 * Returns the average number of array elements that `LookupIndex` reads to decide one name for the source
 * 10.0.0.1.
 */
function readsOf(given: Policy, asked: readonly string[]): number {
  const reads = new Reads();
  const index = new LookupIndex(reads.of<LookupTables>(compile(given).lookups));
  for (const key of asked) index.decide(address('10.0.0.1'), key);
  return reads.count / asked.length;
}

describe('the number of array elements that `LookupIndex` reads for one DNS query', () => {
  const hosts = (count: number, kind: string) =>
    Array.from({ length: count }, (_, number) =>
      rule({ hostname: pattern(`${kind}host${number}.zone${number % 9}.test`) }),
    );
  const asked = (count: number, prefix: string) =>
    Array.from({ length: 500 }, (_, number) => (number * 7919) % count).map((number) =>
      wireNameOf(`${prefix}host${number}.zone${number % 9}.test`),
    );

  test.each([
    ['exact names', '', ''],
    ['names below suffix patterns', '*.', 'www.'],
    ['names that match no rule', '', 'un'],
  ])(
    'the number of array elements that `LookupIndex` reads grows by less than 50 % from 10 to 20,000 rules for DNS queries of %s',
    (_what, kind, prefix) => {
      const [few, many] = [10, 20_000].map((count) =>
        readsOf(policy([group(anyone, hosts(count, kind))]), asked(count, prefix)),
      );
      expect(many).toBeLessThan(1.5 * (few ?? 0));
    },
  );

  test('the number of array elements that `LookupIndex` reads for one DNS query grows by less than 60 from 5 to 5,000 groups', () => {
    const own = (count: number) =>
      policy([
        ...hosts(count, '').map((one, number) => group([number % 2 === 0 ? '10.0.0.1' : '10.0.0.2'], [one])),
        ...Array.from({ length: count }, () => group(['10.0.0.3'], [rule({ hostname: api })])),
        group(anyone, [rule({ hostname: api })]),
      ]);
    const key = [wireNameOf('api.example.com')];
    expect(readsOf(own(5_000), key) - readsOf(own(5), key)).toBeLessThan(60);
  });
});
