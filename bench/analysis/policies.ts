import { mask } from '#addresses/ip-address.js';
import { itemAt } from '#arrays/read.js';
import {
  type Group,
  type HostnamePattern,
  IPPROTO,
  type Policy,
  type Prefix,
  type Rule,
} from '#contracts/policy/policy-model.js';
import type { Random } from '#test/seed.js';

/**
 * The kinds of policies of the benchmark. `tens`: groups of ten rules with disjoint sources. `one`: one
 * group for all sources. `site`: a deny list for all sources with a tenth of the rules, infrastructure for
 * all sources, then teams with nested sources, with names, TLS blocks and defaults.
 */
export type PolicyKind = 'tens' | 'one' | 'site';

export function policyOf(kind: PolicyKind, rules: number, random: Random): Policy {
  return { groups: GROUPS[kind](rules, random), default: { action: 'deny', mode: 'enforce', from: 'default_policy' } };
}

const GROUPS: Record<PolicyKind, (rules: number, random: Random) => Group[]> = {
  tens: (rules, random) =>
    Array.from({ length: rules / 10 }, (_, at) =>
      groupOf(`group-${at}`, [{ address: 0x0a00_0000 + at * 256, length: 24 }], rulesOf(10, random, 'allow')),
    ),
  one: (rules, random) => [groupOf('all', [EVERY], rulesOf(rules, random, 'allow'))],
  site: (rules, random) => {
    const listed = Math.floor(rules / 10);
    const shared = Math.min(100, Math.floor(rules / 20));
    const teams = Math.max(1, Math.floor((rules - listed - shared) / 10));
    return [
      groupOf('deny-list', [EVERY], rulesOf(listed, random, 'deny')),
      groupOf('infrastructure', [EVERY], rulesOf(shared, random, 'allow')),
      ...Array.from({ length: teams }, (_, at) => {
        const length = itemAt([16, 20, 24, 24, 24, 28], at % 6);
        const address = mask(0x0a00_0000 + random.below(2 ** 24), length);
        const group = groupOf(`team-${at}`, [{ address, length }], rulesOf(10, random, 'mixed'));
        return random.chance(0.3) ? { ...group, defaultAction: 'deny' as const } : group;
      }),
    ];
  },
};

const EVERY: Prefix<number> = { address: 0, length: 0 };
const PORTS = [22, 25, 53, 80, 123, 443, 3306, 5432, 6379, 8080, 8443, 9090];

function groupOf(id: string, sources: readonly Prefix<number>[], rules: readonly Rule[]): Group {
  return { id, pointer: '', mode: 'enforce', sources, selectors: [], rules, defaultAction: undefined };
}

function rulesOf(count: number, random: Random, kind: 'allow' | 'deny' | 'mixed'): Rule[] {
  return Array.from({ length: count }, (_, at) => {
    const action = kind === 'mixed' ? (random.chance(0.8) ? 'allow' : 'deny') : kind;
    return randomRule(`r${at}`, action, random, kind === 'mixed');
  });
}

export function randomRule(id: string, action: 'allow' | 'deny', random: Random, withConditions = false): Rule {
  const named = withConditions && random.chance(0.05);
  const inspected = withConditions && random.chance(0.03);
  const port = random.pick(PORTS);
  return {
    id,
    pointer: '',
    action,
    mode: 'enforce',
    destinations: named ? [] : Array.from({ length: random.between(1, 2) }, () => destination(random)),
    hostname: named ? nameOf(random) : undefined,
    protocol: inspected || random.chance(0.8) ? IPPROTO.tcp : IPPROTO.udp,
    sourcePorts: [],
    destinationPorts: [{ low: port, high: random.chance(0.1) ? port + 10 : port }],
    icmpTypes: [],
    icmpCodes: [],
    tls: inspected
      ? { mode: 'metadata', sni: [`s${random.below(1_000)}.example.com`], tls13_uninspectable: 'deny' }
      : undefined,
  };
}

function destination(random: Random): Prefix<number> {
  const length = random.pick([16, 20, 24, 24, 28, 32, 32, 32]);
  return { address: mask(0xac10_0000 + random.below(2 ** 20) * 16, length), length };
}

function nameOf(random: Random): HostnamePattern {
  const text = `h${random.below(5_000)}.example.com`;
  return { kind: 'exact', labels: text.split('.'), text };
}
