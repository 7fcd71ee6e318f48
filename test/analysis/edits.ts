import { itemAt } from '#arrays/read.js';
import type { TlsMatchConfig } from '#contracts/policy/policy-document.js';
import type { Group, HostnamePattern, Policy, Rule } from '#contracts/policy/policy-model.js';
import { Random } from '#test/seed.js';
import { type GenerateOptions, generatePolicy } from '../policy/generate.js';

const BLOCKS: readonly TlsMatchConfig[] = [
  {},
  { mode: 'metadata', sni: ['api.example.com'], tls13_uninspectable: 'deny' },
  { mode: 'metadata', server_cn: ['api.example.com'], tls13_uninspectable: 'deny' },
  { mode: 'metadata', server_san: ['*.example.com'], tls13_uninspectable: 'allow' },
  { mode: 'metadata', server_dn: 'CN=api.example.com', tls13_uninspectable: 'allow' },
  { mode: 'metadata', fingerprint_sha256: ['00'.repeat(32)] },
  { mode: 'metadata', trust_anchors_pem: ['-----BEGIN CERTIFICATE-----'], tls13_uninspectable: 'allow' },
  { mode: 'intercept', http: { request: { methods: ['GET'] } } },
  { mode: 'intercept', server_cn: ['api.example.com'] },
];

const NAMES: readonly HostnamePattern[] = [
  { kind: 'exact', labels: ['www', 'example', 'com'], text: 'www.example.com' },
  { kind: 'exact', labels: ['other', 'org'], text: 'other.org' },
  { kind: 'suffix', labels: ['b', 'example', 'com'], text: '*.b.example.com' },
];

/** Returns a random policy with different TLS blocks and hostname patterns. */
export function randomPolicy(random: Random, options: GenerateOptions = {}): Policy {
  const policy = generatePolicy(random, options);
  return {
    ...policy,
    groups: policy.groups.map((group) => ({
      ...group,
      rules: group.rules.map((rule) => ({
        ...rule,
        tls: rule.tls === undefined ? undefined : random.pick(BLOCKS),
        hostname: rule.hostname !== undefined && random.chance(0.5) ? random.pick(NAMES) : rule.hostname,
      })),
    })),
  };
}

/** Returns the policy after one to four edits of the kinds that operators make. */
export function edited(random: Random, policy: Policy, options: GenerateOptions = {}): Policy {
  let after = policy;
  for (let edits = random.between(1, 4); edits > 0; edits--) after = random.pick(EDITS)(random, after, options);
  return after;
}

/** A random policy before and after random edits. `random`: for further choices of the test. */
export type EditedPair = {
  readonly pair: number;
  readonly random: Random;
  readonly before: Policy;
  readonly after: Policy;
};

/** Yields `count` pairs of random policies. Each pair depends on the seed and on its number only. */
export function* editedPairs(seed: number, count: number, options: GenerateOptions = {}): Generator<EditedPair> {
  for (let pair = 0; pair < count; pair++) {
    const random = new Random(seed * 1_000_003 + pair);
    const before = randomPolicy(random, options);
    yield { pair, random, before, after: edited(random, before, options) };
  }
}

type Edit = (random: Random, policy: Policy, options: GenerateOptions) => Policy;

const inGroup =
  (edit: (random: Random, group: Group, other: Policy) => Group): Edit =>
  (random, policy, options) => {
    if (policy.groups.length === 0) return policy;
    const at = random.below(policy.groups.length);
    const other = randomPolicy(random, options);
    return {
      ...policy,
      groups: policy.groups.map((group, index) => (index === at ? edit(random, group, other) : group)),
    };
  };

const inRules = (edit: (random: Random, rules: Rule[], other: Rule | undefined) => Rule[]): Edit =>
  inGroup((random, group, other) => ({
    ...group,
    rules: edit(random, [...group.rules], other.groups.flatMap(({ rules }) => rules)[0]),
  }));

const flip = (action: 'allow' | 'deny') => (action === 'allow' ? 'deny' : 'allow');

const EDITS: readonly Edit[] = [
  inRules((random, rules, other) => {
    if (other !== undefined)
      rules.splice(random.between(0, rules.length), 0, { ...other, id: `new-${random.below(100)}` });
    return rules;
  }),
  inRules((random, rules) => {
    if (rules.length > 0) rules.splice(random.below(rules.length), 1);
    return rules;
  }),
  inRules((random, rules) => {
    if (rules.length === 0) return rules;
    const [moved] = rules.splice(random.below(rules.length), 1);
    rules.splice(random.between(0, rules.length), 0, moved as Rule);
    return rules;
  }),
  inRules((random, rules) => {
    if (rules.length === 0) return rules;
    const at = random.below(rules.length);
    const rule = itemAt(rules, at);
    rules[at] = random.pick<() => Rule>([
      () => ({ ...rule, action: flip(rule.action) }),
      () => ({ ...rule, mode: rule.mode === 'audit' ? 'enforce' : 'audit' }),
      () => ({ ...rule, destinations: rule.destinations.slice(1) }),
      () => ({ ...rule, destinationPorts: rule.destinationPorts.slice(1) }),
      () => ({ ...rule, sourcePorts: rule.sourcePorts.slice(1) }),
      () => ({ ...rule, icmpTypes: rule.icmpTypes.slice(1) }),
      () => ({ ...rule, icmpCodes: rule.icmpCodes.slice(1) }),
      () => ({ ...rule, protocol: 'any' }),
      () => ({ ...rule, tls: rule.tls === undefined ? rule.tls : random.pick(BLOCKS) }),
      () => ({ ...rule, hostname: undefined }),
    ])();
    return rules;
  }),
  inGroup((random, group, other) => ({
    ...group,
    sources: [...group.sources, ...(other.groups[0]?.sources ?? [])].slice(random.below(2)),
  })),
  inGroup((_random, group, other) => ({
    ...group,
    selectors: other.groups.find(({ selectors }) => selectors.length > 0)?.selectors ?? [],
  })),
  inGroup((random, group) => ({
    ...group,
    defaultAction: random.chance(0.3) ? undefined : random.pick(['allow', 'deny'] as const),
  })),
  inGroup((_random, group) => ({ ...group, mode: group.mode === 'audit' ? 'enforce' : 'audit' })),
  (random, policy) => {
    if (policy.groups.length === 0) return policy;
    const groups = [...policy.groups];
    const [moved] = groups.splice(random.below(groups.length), 1);
    if (random.chance(0.6)) groups.splice(random.between(0, groups.length), 0, moved as Group);
    return { ...policy, groups };
  },
  (random, policy, options) => {
    const [group] = randomPolicy(random, options).groups;
    if (group === undefined) return policy;
    const groups = [...policy.groups];
    groups.splice(random.between(0, groups.length), 0, { ...group, id: `added-${random.below(1_000)}` });
    return { ...policy, groups };
  },
  (random, policy) => ({ ...policy, default: { ...policy.default, action: random.pick(['allow', 'deny'] as const) } }),
  (random, policy) => ({ ...policy, default: { ...policy.default, mode: random.pick(['audit', 'enforce'] as const) } }),
  (random, _policy, options) => randomPolicy(random, options),
];
