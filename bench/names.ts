import { type HostnamePattern, IPPROTO, type Policy, type Rule } from '#contracts/policy/policy-model.js';
import { compile } from '#policy/compile/compile.js';
import { LookupIndex } from '#policy/evaluate/lookup/lookup-index.js';
import { wireNameOf } from '#test/policy/wire-name.js';
import { Random } from '#test/seed.js';
import type { Bench, Row } from './bench.js';

const SOURCES = 0x0a00_0000;
const RULES_A_GROUP = 10;
const REGEXES = 20;
const COLD = 30_000;
const WARM = 1_000;

function name(number: number): string {
  return `host${number}.zone${number % 997}.example.com`;
}

/**
 * Returns the hostname pattern with index `number`. Every third pattern is `*.name` and matches only names
 * below `name`.
 */
function pattern(number: number): HostnamePattern {
  const text = name(number);
  const labels = text.split('.');
  return number % 3 === 0 ? { kind: 'suffix', labels, text: `*.${text}` } : { kind: 'exact', labels, text };
}

function rule(index: number, hostname: HostnamePattern): Rule {
  return {
    id: `r${index}`,
    pointer: '',
    action: 'allow',
    mode: 'enforce',
    destinations: [],
    hostname,
    protocol: IPPROTO.tcp,
    sourcePorts: [],
    destinationPorts: [{ low: 443, high: 443 }],
    icmpTypes: [],
    icmpCodes: [],
    tls: undefined,
  };
}

/**
 * Returns a policy of groups with ten hostname rules each. Each group has its own sources. The last group has
 * `regexes` rules with regular expressions, and applies to all sources.
 */
function policyOf(names: number, regexes: number): Policy {
  const group = (number: number, rules: readonly Rule[]) => ({
    id: `g${number}`,
    pointer: '',
    mode: 'enforce' as const,
    sources: [{ address: SOURCES + number * 256, length: 24 }],
    selectors: [],
    rules,
    defaultAction: undefined,
  });
  const groups = Array.from({ length: names / RULES_A_GROUP }, (_, number) =>
    group(
      number,
      Array.from({ length: RULES_A_GROUP }, (_rule, index) => rule(index, pattern(number * RULES_A_GROUP + index))),
    ),
  );
  const expressions = Array.from({ length: regexes }, (_, index) =>
    rule(index, { kind: 'regex', text: `^(api|www)${index}-[0-9a-f]+\\.example\\.net$` }),
  );
  return {
    groups: [...groups, { ...group(groups.length, expressions), sources: [{ address: 0, length: 0 }] }],
    default: { action: 'deny', mode: 'enforce', from: 'default_policy' },
  };
}

type Queries = { readonly sources: Uint32Array; readonly keys: readonly string[] };

/**
 * Returns random DNS lookups. A quarter of the lookups ask for names in rules of the source, and a quarter
 * for names below these. A quarter ask for names in rules of other sources, and a quarter for names in no
 * rule. The key strings are decoded from bytes, like the keys of DNS messages.
 */
function queriesFor(random: Random, names: number, count: number): Queries {
  const sources = new Uint32Array(count);
  const keys = Array.from({ length: count }, (_, at) => {
    const number = random.below(names);
    sources[at] = SOURCES + Math.floor(number / RULES_A_GROUP) * 256 + random.below(256);
    const text = [name(number), `www.${name(number)}`, name(random.below(names)), `n${random.word()}.example.net`];
    return Buffer.from(wireNameOf(text[at % text.length] ?? ''), 'latin1').toString('latin1');
  });
  return { sources, keys };
}

function nanoseconds(index: LookupIndex, { sources, keys }: Queries, rounds: number): number {
  const started = performance.now();
  for (let round = 0; round < rounds; round++) {
    for (let at = 0; at < keys.length; at++) index.decide(sources[at] as number, keys[at] as string);
  }
  return ((performance.now() - started) * 1e6) / (rounds * keys.length);
}

type Figures = { readonly cold: number; readonly warm: number };

/**
 * Returns the fastest of seven rounds. A cold round looks up 30,000 names of the whole policy once. A warm
 * round looks up 1,000 names 20 times.
 */
function measure(names: number, regexes: number): Figures {
  const random = new Random(names);
  const { lookups } = compile(policyOf(names, regexes));
  const rounds = Array.from({ length: 7 }, (): Figures => {
    const index = new LookupIndex(lookups);
    const few = queriesFor(random, names, WARM);
    const cold = nanoseconds(index, queriesFor(random, names, COLD), 1);
    nanoseconds(index, few, 2);
    return { cold, warm: nanoseconds(index, few, 20) };
  });
  return {
    cold: Math.min(...rounds.map(({ cold }) => cold)),
    warm: Math.min(...rounds.map(({ warm }) => warm)),
  };
}

async function run(): Promise<readonly Row[]> {
  const rows: Row[] = [];
  measure(10, REGEXES);
  for (const regexes of [0, REGEXES]) {
    const smallest = measure(10, regexes);
    for (const names of [10, 10_000, 100_000]) {
      const { cold, warm } = names === 10 ? smallest : measure(names, regexes);
      const label = `${names.toLocaleString('en')} names${regexes === 0 ? '' : `, ${regexes} expressions`}`;
      rows.push(
        { what: `${label}: a lookup, warm`, value: warm, unit: 'ns', atMost: 500 },
        { what: `${label}: a lookup, cold`, value: cold, unit: 'ns', ...(regexes === 0 && { atMost: 3_000 }) },
      );
      if (names !== 100_000) continue;
      rows.push(
        { what: `${label} relative to 10: warm`, value: warm / smallest.warm, unit: '×', atMost: 2 },
        { what: `${label} relative to 10: cold`, value: cold / smallest.cold, unit: '×' },
      );
    }
  }
  return rows;
}

/**
 * Measures how long the DNS proxy takes to decide whether a source may look a name up, by the number of
 * names.
 */
export const namesBench: Bench = { name: 'names', run };
