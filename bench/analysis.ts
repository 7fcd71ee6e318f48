import { formatPrefix } from '#addresses/ip-address.js';
import { analyse } from '#analysis/analyse.js';
import { checkedWrite } from '#analysis/checked-write.js';
import { IPV4, IPV6 } from '#analysis/engine/address-space.js';
import { compare } from '#analysis/engine/comparison.js';
import { itemAt } from '#arrays/read.js';
import type { Assertion } from '#contracts/analysis/assertion.js';
import type { FlowQuestion } from '#contracts/analysis/flow-question.js';
import { LINT_CHECKS, type LintCheck } from '#contracts/analysis/policy-lint.js';
import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import { Random } from '#test/seed.js';
import { type PolicyKind, policyOf, randomRule } from './analysis/policies.js';
import type { Bench, Row } from './bench.js';

const RULES = 100_000;
const RUNS = 7;
/** Runs before the measured ones: the analysis thread of a node lives long, and its code is compiled. */
const WARM_UP_RUNS = 5;
const QUESTIONS = 200;
const ASSERTIONS = 1_000;
const COUNT = ASSERTIONS.toLocaleString('en');
/** The largest time for all assertions of a write, without the comparison of the policies. */
const ASSERTIONS_MS = 100;
/** A comparison or question that takes longer must end before all sources are compared. */
const LONGEST_MS = 5_000;

type Edit = readonly [name: string, edit: (policy: Policy, random: Random) => Policy];

const withGroup = (policy: Policy, at: number, edit: (group: Group) => Group): Policy => ({
  ...policy,
  groups: policy.groups.map((group, index) => (index === at ? edit(group) : group)),
});
const withRule = (group: Group, at: number, ...put: Rule[]): Group => ({
  ...group,
  rules: group.rules.toSpliced(at, 1, ...put),
});

/** Edits of one rule come first. */
const EDITS: readonly Edit[] = [
  [
    'a rule is added',
    (policy, random) =>
      withGroup(policy, policy.groups.length - 1, (group) => ({
        ...group,
        rules: [randomRule('new', 'allow', random), ...group.rules],
      })),
  ],
  [
    'a rule is removed',
    (policy, random) =>
      withGroup(policy, random.below(policy.groups.length), (group) =>
        withRule(group, random.below(group.rules.length)),
      ),
  ],
  [
    'a rule is flipped',
    (policy, random) =>
      withGroup(policy, random.below(policy.groups.length), (group) => {
        const at = random.below(group.rules.length);
        const rule = itemAt(group.rules, at);
        return withRule(group, at, { ...rule, action: rule.action === 'allow' ? 'deny' : 'allow' });
      }),
  ],
  [
    'a rule of the first group is flipped',
    (policy, random) =>
      withGroup(policy, 0, (group) => {
        const at = random.below(group.rules.length);
        const rule = itemAt(group.rules, at);
        return withRule(group, at, { ...rule, action: rule.action === 'allow' ? 'deny' : 'allow' });
      }),
  ],
  [
    'a group gains a /24',
    (policy, random) =>
      withGroup(policy, random.below(policy.groups.length), (group) => ({
        ...group,
        sources: [...group.sources, { address: 0xc0a8_0000, length: 24 }],
      })),
  ],
  [
    '1 % of the rules flipped',
    (policy, random) => ({
      ...policy,
      groups: policy.groups.map((group) => ({
        ...group,
        rules: group.rules.map((rule) =>
          random.chance(0.01)
            ? { ...rule, action: rule.action === 'allow' ? ('deny' as const) : ('allow' as const) }
            : rule,
        ),
      })),
    }),
  ],
  [
    'a deny for all in front',
    (policy, random) => ({
      ...policy,
      groups: [
        {
          id: 'front',
          pointer: '',
          mode: 'enforce',
          sources: [{ address: 0, length: 0 }],
          selectors: [],
          rules: [randomRule('no', 'deny', random)],
          defaultAction: undefined,
        },
        ...policy.groups,
      ],
    }),
  ],
  ['default to allow', (policy) => ({ ...policy, default: { ...policy.default, action: 'allow' } })],
];

const OF_ONE_RULE = 4;
const LABELS: Readonly<Record<PolicyKind, string>> = {
  tens: 'groups of ten',
  one: 'one group',
  site: 'a site with a deny list',
};

export const analysisBench: Bench = {
  name: 'analysis',
  run: async () => {
    const rows: Row[] = [];
    for (const kind of ['tens', 'one', 'site'] as const) {
      const policy = policyOf(kind, RULES, new Random(1));
      for (const [index, [name, edit]] of EDITS.entries()) {
        const after = edit(policy, new Random(2));
        const atMost = index < OF_ONE_RULE ? (kind === 'one' ? 600 : 150) : LONGEST_MS;
        const { ms, answer } = medianOf(() => analyse([policy, after], { kind: 'diff', limit: 50 }, true));
        const isComplete = answer.kind === 'diff' && answer.diff.complete;
        rows.push({
          what: `${LABELS[kind]}, ${name}${isComplete ? '' : ' (not complete)'}`,
          value: ms,
          unit: 'ms',
          atMost,
        });
      }
      rows.push(...questionsAbout(policy, LABELS[kind]), ...assertionsOfWrite(policy, LABELS[kind]));
    }
    return [...rows, ...lintRows()];
  },
};

const LINTED = 10_000;
/** Lint of a large policy must end within the time limit of an analysis. */
const LONGEST_LINT_MS = 30_000;

function lintRows(): Row[] {
  const site = policyOf('site', LINTED, new Random(1));
  const rowOf = (checks: readonly LintCheck[], atMost: number): Row => {
    const { ms } = medianOf(() => analyse([site], { kind: 'lint', checks, limit: 50 }, true));
    return { what: `lint, a site with ${LINTED} rules, ${checks.join()}`, value: ms, unit: 'ms', atMost };
  };
  const rows = [rowOf(['unreachable'], 500), rowOf(['removable'], 8_000), rowOf(LINT_CHECKS, 20_000)];
  const large = policyOf('site', RULES, new Random(1));
  const began = performance.now();
  const answer = analyse([large], { kind: 'lint', checks: LINT_CHECKS, limit: 50 }, true);
  const value = performance.now() - began;
  const isComplete = answer.kind === 'lint' && answer.lint.complete;
  const what = `lint, a site with ${RULES} rules, every check${isComplete ? '' : ' (not complete)'}`;
  return [...rows, { what, value, unit: 'ms', atMost: LONGEST_LINT_MS }];
}

function medianOf<T>(work: () => T): { readonly ms: number; readonly answer: T } {
  const times: number[] = [];
  let answer = work();
  for (let run = 1; run < WARM_UP_RUNS + RUNS; run++) {
    const began = performance.now();
    answer = work();
    if (run >= WARM_UP_RUNS) times.push(performance.now() - began);
  }
  return {
    ms: itemAt(
      times.sort((one, other) => one - other),
      Math.floor(RUNS / 2),
    ),
    answer,
  };
}

/** Returns questions whether one source reaches one destination at one port, with addresses of the policy. */
function questionsOf(policy: Policy, count: number): FlowQuestion[] {
  const random = new Random(3);
  const rules = policy.groups.flatMap((group) => group.rules);
  return Array.from({ length: count }, () => {
    const { sources } = random.pick(policy.groups);
    const rule = random.pick(rules);
    return {
      from: sources.slice(0, 1).map(formatPrefix),
      to: rule.destinations.length === 0 ? ['192.0.2.0/24'] : rule.destinations.map(formatPrefix),
      proto: rule.protocol,
      ports: rule.destinationPorts.map(({ low, high }) => `${low}-${high}`),
    };
  });
}

/** Checks the assertions of a write that changes one rule. */
function assertionsOfWrite(policy: Policy, label: string): Row[] {
  const assertions = questionsOf(policy, ASSERTIONS).map((asked, at): Assertion => {
    const id = `a${at}`;
    if (at % 4 === 0) return { id, always: asked };
    if (at % 4 === 1) return { id, only: { ...asked, from: asked.from ?? [] } };
    // Every eighth assertion names a source group.
    const group = itemAt(policy.groups, at % policy.groups.length).id;
    return { id, never: at % 8 === 2 ? { ...asked, from: { group } } : asked };
  });
  const rows: Row[] = [];
  let alone = 0;
  for (const [name, edit] of EDITS.slice(0, OF_ONE_RULE)) {
    const after = edit(policy, new Random(2));
    const compared = medianOf(() => compare(policy, after, { spaces: [IPV4, IPV6] }));
    const checked = medianOf(() => {
      const check = checkedWrite(policy, after, assertions, { limit: 3, isOver: () => false, ipv6: true });
      return check.found(() => null).length;
    });
    alone = Math.max(alone, checked.ms - compared.ms);
    rows.push({ what: `${label}, ${name}, comparison and ${COUNT} assertions`, value: checked.ms, unit: 'ms' });
  }
  const what = `${label}, ${COUNT} assertions without the comparison, the slowest of these edits`;
  return [...rows, { what, value: alone, unit: 'ms', atMost: ASSERTIONS_MS }];
}

function questionsAbout(policy: Policy, label: string): Row[] {
  const times: number[] = [];
  for (const asked of questionsOf(policy, QUESTIONS)) {
    const began = performance.now();
    analyse([policy], { kind: 'ask', asked, limit: 50 }, true);
    times.push(performance.now() - began);
  }
  times.sort((one, other) => one - other);
  const at = (share: number) => itemAt(times, Math.floor(share * (QUESTIONS - 1)));
  return [
    { what: `${label}, a question, median`, value: at(0.5), unit: 'ms' },
    { what: `${label}, a question, 95 %`, value: at(0.95), unit: 'ms', atMost: 25 },
  ];
}
