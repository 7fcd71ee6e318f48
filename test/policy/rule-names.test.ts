import { describe, expect, test } from 'vitest';
import type { Policy } from '#contracts/policy/policy-model.js';
import type { RuleNames } from '#contracts/policy/rule-names.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import { compile } from '#policy/compile/compile.js';
import { rankOwners } from '#policy/model/rules/rank.js';
import { deciderAt, ruleNamesAfter, ruleNamesOf, ruleNamesOfRecord } from '#policy/model/rules/rule-names.js';
import { Random } from '#test/seed.js';
import { generatePolicy } from './generate.js';
import { group, policy, rule } from './sample.js';

const RECORD = { id: '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10', revision: 3 };

const sample = policy([
  group(['10.0.0.0/8'], [rule({ id: 'web' }), rule({ id: 'dns' })], { id: 'lan', defaultAction: 'deny' }),
  group(['10.0.0.0/8'], [rule({ id: 'web' })], { id: 'Büro 🏢' }),
]);

function identities({ identities: words }: RuleNames): string[] {
  return Array.from({ length: words.length / 2 }, (_, rank) =>
    [words[2 * rank + 1], words[2 * rank]].map((word) => (word ?? 0).toString(16).padStart(8, '0')).join(''),
  );
}

const verdictsOf = ({ verdicts }: RuleNames) => Array.from(verdicts, verdictOf);

describe('rule names', () => {
  test('the rule names of a policy contain the rule or default for each rank (place in the order of evaluation)', () => {
    const ruleNames = ruleNamesOf(sample);
    expect([0, 1, 2, 3, 4].map((rank) => deciderAt(ruleNames, rank))).toEqual([
      { kind: 'rule', group: 'lan', rule: 'web' },
      { kind: 'rule', group: 'lan', rule: 'dns' },
      { kind: 'group_default', group: 'lan' },
      { kind: 'rule', group: 'Büro 🏢', rule: 'web' },
      { kind: 'policy_default' },
    ]);
  });

  test('the rule names contain for each rank (place in the order) of the compiled policy the rule or default of that rank in the policy', () => {
    const random = new Random(7);
    for (let number = 0; number < 50; number++) {
      const given = generatePolicy(random);
      const { ruleNames, ranks } = compile(given);
      const named = rankOwners(given).map((place) => {
        const { id = '', rules = [] } = given.groups[place.kind === 'policy_default' ? -1 : place.group] ?? {};
        if (place.kind === 'policy_default') return place;
        return place.kind === 'rule'
          ? { kind: 'rule', group: id, rule: rules[place.rule]?.id }
          : { kind: 'group_default', group: id };
      });
      expect(Array.from({ length: ranks }, (_, rank) => deciderAt(ruleNames, rank))).toEqual(named);
    }
  });

  test('the rule names of a policy contain the verdict of each rule and default, also after a change of one group or of the default', () => {
    const names = (given: Policy) => verdictsOf(ruleNamesOf(given));
    const audited = { mode: 'audit' } as const;
    const given = policy([
      group([], [rule(), rule({ action: 'deny' }), rule({ action: 'deny', ...audited })], { defaultAction: 'deny' }),
      group([], [rule(audited)], { ...audited, defaultAction: 'deny' }),
    ]);
    expect(names(given)).toEqual(['allow', 'deny', 'audit', 'deny', 'allow', 'audit', 'deny']);
    const random = new Random(11);
    let before = generatePolicy(random);
    let known = ruleNamesOf(before);
    for (let number = 0; number < 50; number++) {
      const next = generatePolicy(random);
      const groups = before.groups.map((kept, at) => (at === number % before.groups.length ? next.groups[0] : kept));
      const after = { ...next, groups: groups.filter((kept) => kept !== undefined) };
      known = ruleNamesAfter(known, before.groups, after);
      expect(verdictsOf(known)).toEqual(names(after));
      before = after;
    }
  });

  test('rule names have the same hit identities (keys of hit counters) in every release, because a new process finds kernel counters by these identities', () => {
    expect(identities(ruleNamesOfRecord(ruleNamesOf(sample), RECORD))).toEqual([
      'f4b51bd0b21cc2b8',
      'b2eee9dccbde2ec3',
      '8ce04733d8ba8a17',
      'f0f982ee9000a2ad',
      '8cdba8072c10b561',
    ]);
    expect(identities(ruleNamesOf(policy([])))).toEqual(['202152dc12c15324']);
  });

  test('rule names keep the hit identities (keys of hit counters) if groups and rules move and the revision of the policy record changes', () => {
    const before = identities(ruleNamesOfRecord(ruleNamesOf(sample), RECORD));
    const [lan, office] = sample.groups;
    if (lan === undefined || office === undefined) throw new Error('no groups');
    const moved = policy([office, { ...lan, rules: [...lan.rules].reverse(), defaultAction: undefined }]);
    const after = identities(ruleNamesOfRecord(ruleNamesOf(moved), { ...RECORD, revision: 4 }));
    expect(after).toEqual([before[3], before[1], before[0], before[4]]);
  });

  test('rule names have distinct hit identities (keys of hit counters) for distinct names, for names with equal concatenations, and for other policy records', () => {
    const pairs = [
      ['a', 'bc'],
      ['ab', 'c'],
      ['abc', ''],
      ['', 'abc'],
      ['a', 'b'],
    ];
    const ruleNameHistory = pairs.map(([id = '', name = '']) =>
      ruleNamesOf(policy([group([], [rule({ id: name })], { id })])),
    );
    const all = [
      ...ruleNameHistory,
      ...ruleNameHistory.map((ruleNames) => ruleNamesOfRecord(ruleNames, RECORD)),
    ].flatMap((ruleNames) => identities(ruleNames).slice(0, 1));
    expect(new Set(all).size).toBe(all.length);
  });

  test('rule names have 100,001 distinct hit identities (keys of hit counters) for 100,000 rules, and no identity whose low 32 bits are 0', () => {
    const rules = Array.from({ length: 1_000 }, (_, number) => rule({ id: `rule-${number}` }));
    const groups = Array.from({ length: 100 }, (_, number) => group([], [...rules], { id: `group-${number}` }));
    const ruleNames = ruleNamesOfRecord(ruleNamesOf(policy(groups)), RECORD);
    expect(new Set(identities(ruleNames)).size).toBe(100_001);
    expect(ruleNames.identities.every((word, at) => at % 2 === 1 || word !== 0)).toBe(true);
  });
});
