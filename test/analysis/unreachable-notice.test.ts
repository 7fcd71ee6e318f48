import { expect, test } from 'vitest';
import { analyse } from '#analysis/analyse.js';
import { IPV4 } from '#analysis/engine/address-space.js';
import { compare } from '#analysis/engine/comparison.js';
import { lintPolicy } from '#analysis/lint/lint.js';
import { lostRules } from '#analysis/lint/lost-rules.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import { seedOf } from '#test/seed.js';
import { editedPairs } from './edits.js';
import { type Draft, modelOf, OFFICE, officeAfter } from './office.js';

const PAIRS = Number(process.env.WEIR_PAIRS ?? 400);

function noticeOf(edit: (draft: Draft) => void, before: Policy = modelOf(OFFICE)): string | null {
  const answer = analyse([before, modelOf(officeAfter(edit))], { kind: 'diff', limit: 50 }, false);
  if (answer.kind !== 'diff') throw new Error('no diff');
  return answer.diff.notices.find(({ code }) => code === 'unreachable_rule')?.text ?? null;
}

const office = (draft: Draft) => draft.source_groups[1] as Draft['source_groups'][number];
const rule = (id: string, action: string, match: object) => ({ id, action, match }) as never;

test.each<[edit: string, text: string, apply: (draft: Draft) => void]>([
  [
    'a rule that covers another one',
    'no flow reaches office/files any more: office/no-files decides all its flows',
    (draft) => office(draft).rules?.unshift(rule('no-files', 'deny', { dst_cidrs: ['10.3.0.0/16'] })),
  ],
  [
    'a rule that covers two',
    'no flow reaches office/files any more: office/no-net decides all its flows; 1 more such rule',
    (draft) => office(draft).rules?.unshift(rule('no-net', 'deny', { dst_cidrs: ['10.0.0.0/8'] })),
  ],
  [
    'a rule behind one that covers it',
    'no flow reaches the new rule office/tls: office/web decides all its flows',
    (draft) => office(draft).rules?.push(rule('tls', 'allow', { proto: 'tcp', dst_ports: [443] })),
  ],
  [
    'a default of a group in front',
    'no flow reaches office/no-smtp any more: the default of admins decides all its flows; 4 more such rules',
    (draft) => {
      const [admins] = draft.source_groups;
      Object.assign(admins ?? {}, { sources: { cidrs: ['10.1.0.0/16'] }, rules: [], default_action: 'deny' });
    },
  ],
])('the diff has a notice after %s is added: %s', (_edit, text, apply) => {
  expect(noticeOf(apply)).toBe(text);
});

test('the policy diff has a notice about unreachable rules if the change only adds a default action to an earlier group', () => {
  const widened = (draft: Draft) => {
    const [admins] = draft.source_groups;
    Object.assign(admins ?? {}, {
      sources: { cidrs: ['10.1.0.0/16'] },
      rules: [rule('ssh', 'allow', { proto: 'tcp', dst_ports: [22] })],
    });
  };
  const after = (draft: Draft) => {
    widened(draft);
    Object.assign(draft.source_groups[0] ?? {}, { default_action: 'deny' });
  };
  expect(noticeOf(after, modelOf(officeAfter(widened)))).toBe(
    'no flow reaches office/no-smtp any more: the default of admins decides all its flows; 4 more such rules',
  );
});

test('the policy diff has no notice about a rule that the change removes, that still decides a flow, or that was unreachable before', () => {
  expect(noticeOf((draft) => office(draft).rules?.splice(0, 1))).toBeNull();
  expect(
    noticeOf((draft) => office(draft).rules?.unshift(rule('no-files', 'deny', { dst_cidrs: ['10.3.0.0/25'] }))),
  ).toBeNull();
  const tls = rule('tls', 'allow', { proto: 'tcp', dst_ports: [443] });
  const before = modelOf(officeAfter((draft) => office(draft).rules?.push(tls)));
  const after = (draft: Draft) => {
    office(draft).rules?.push(tls);
    office(draft).rules?.unshift(rule('no-tls', 'deny', { proto: 'tcp', dst_ports: [443], dst_cidrs: ['10.0.0.0/8'] }));
  };
  expect(noticeOf(after, before)).toBeNull();
});

test('the notices of a policy diff name only rules that lint finds unreachable after the change but not before', () => {
  const seed = seedOf(31);
  const found = { rules: 0, missed: 0 };
  for (const { pair, before, after } of editedPairs(seed, PAIRS)) {
    const [formerly, now] = [before, after].map(unreachableIn) as [Set<string>, Set<string>];
    const lost = lostRules(before, after, compare(before, after, { spaces: [IPV4] }), [IPV4]).map(
      ({ group, rule: own }) => nameOf(group.id, own.id),
    );
    for (const name of lost) expect([now.has(name), formerly.has(name)], `${pair} ${name}`).toEqual([true, false]);
    found.rules += lost.length;
    // A rule that loses its sources, or whose own matchers now match nothing, is not covered by a change.
    found.missed += [...now].filter((name) => !formerly.has(name) && !lost.includes(name)).length;
  }
  expect(found.rules).toBeGreaterThan(PAIRS / 10);
  expect(found.missed).toBeLessThan(found.rules / 2);
});

const nameOf = (group: string, own: string): string => `${group}/${own}`;

function unreachableIn(policy: Policy): Set<string> {
  const { findings } = lintPolicy(policy, { spaces: [IPV4], checks: ['unreachable'], limit: 1_000, steps: 8_000_000 });
  return new Set(
    findings.flatMap(({ source_group: id, rules }) => {
      const all = policy.groups.find((group) => group.id === id)?.rules ?? [];
      return (rules.length > 0 ? rules : all.map((one) => one.id)).map((own) => nameOf(id, own));
    }),
  );
}
