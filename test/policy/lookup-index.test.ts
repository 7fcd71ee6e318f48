import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compile } from '#policy/compile.js';
import { matchesHostname, parseHostname } from '#policy/hostname.js';
import { evaluateLookup } from '#policy/lookup.js';
import { LookupIndex } from '#policy/lookup-index.js';
import type { LookupTables } from '#policy/lookup-tables.js';
import type { Action, Group, HostnamePattern, Mode, Policy, Prefix, Rule } from '#policy/model.js';
import { word } from '#policy/program.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { wireName, wireNameOf } from '#test/policy/wire-name.js';

function pattern(text: string): HostnamePattern {
  const parsed = parseHostname(text);
  if (!('pattern' in parsed)) throw new Error(parsed.fault);
  return parsed.pattern;
}

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
const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined, freq: 2 });
const destination = fc.constantFrom<Prefix>({ address: 0, length: 0 }, { address: 0xc000_0200, length: 24 });
const port = fc.constantFrom({ low: 53, high: 53 }, { low: 443, high: 443 }, { low: 0, high: 100 });
const seldom = <T>(arbitrary: fc.Arbitrary<T>) =>
  fc.oneof({ weight: 6, arbitrary: fc.constant<T[]>([]) }, { weight: 1, arbitrary: arbitrary.map((one) => [one]) });
const rules = fc.record<Rule>({
  id: fc.constant('rule'),
  pointer: fc.constant('/rules/0'),
  action,
  mode,
  destinations: seldom(destination),
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
  dynamic: fc.constant(false),
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
  return word(rank, verdict, audited);
}

function indexOf(given: Policy): LookupIndex {
  return new LookupIndex(compile(given).lookups);
}

describe('an index of lookups', () => {
  test('decides what the reference decides, asked once or again', () => {
    fc.assert(
      fc.property(policies, fc.array(fc.tuple(sources, names), { minLength: 1, maxLength: 12 }), (given, asked) => {
        const index = indexOf(given);
        for (const [source, labels] of [...asked, ...asked]) {
          expect(index.decide(source, wireName(labels))).toBe(decided(given, source, labels));
        }
      }),
      { numRuns: 2_000 },
    );
  });

  test('finds the patterns that match, ascending', () => {
    fc.assert(
      fc.property(policies, fc.array(names, { minLength: 1, maxLength: 12 }), (given, asked) => {
        const program = compile(given);
        expect(program.names).toEqual(patternsOf(given));
        const index = new LookupIndex(program.lookups);
        for (const labels of [...asked, ...asked]) {
          const wanted = [...program.names.keys()].filter((number) => {
            const one = program.names[number];
            return one !== undefined && matchesHostname(one, labels);
          });
          expect(index.matching(wireName(labels))).toEqual(wanted);
        }
      }),
      { numRuns: 2_000 },
    );
  });
});
