import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { changeSize, measuredParts, measuredText } from '#policy/check/change-size.js';
import { readPolicy } from '#policy/check/read-policy.js';

type Rule = { readonly id: string; readonly ports?: readonly number[]; readonly action?: string };
type Group = { readonly id: string; readonly rules?: readonly Rule[]; readonly priority?: number };

const rule = ({ id, ports = [80], action = 'allow' }: Rule) => ({
  id,
  action,
  match: { proto: 'tcp', dst_ports: ports },
});
const group = ({ id, rules = [{ id: 'r' }], ...more }: Group) => ({
  id,
  sources: { cidrs: ['10.0.0.0/8'] },
  rules: rules.map(rule),
  ...more,
});
const policy = (groups: readonly Group[], more = {}) => ({ source_groups: groups.map(group), ...more });

/** Measures a policy in the envelope form in both ways: as the parts of a valid policy, and as a text. */
function measured(document: unknown, mode = 'enforce', space?: number) {
  const body = Buffer.from(JSON.stringify({ mode, policy: document }, null, space));
  const read = readPolicy(body, {
    form: 'envelope',
    recordMode: 'enforce',
    fallback: 'deny',
    integrations: undefined,
    dns: true,
    servicePlane: true,
    policesNode: false,
    ipv6: false,
    parseCertificate: () => undefined,
  } as never);
  if (!read.ok) throw new Error(JSON.stringify(read.problems));
  const ofText = measuredText(body, 'envelope', 'enforce');
  if (ofText === null) throw new Error('the text is not JSON');
  return { parts: measuredParts(read.parsed.parts), text: ofText };
}

type Measured = ReturnType<typeof measured>;
function size(before: Measured | null, after: Measured) {
  const found = changeSize(before?.parts ?? null, after.parts);
  expect(changeSize(before?.text ?? null, after.parts)).toEqual(found);
  return found;
}
const counts = (added: number, changed: number, removed: number) => ({ added, changed, removed });
const NOTHING = { groups: counts(0, 0, 0), rules: counts(0, 0, 0), other: false };

describe('the size of a policy change', () => {
  const two = [{ id: 'a', rules: [{ id: '1' }, { id: '2' }] }, { id: 'b' }];

  test('the size of a first revision counts all groups and rules as added', () => {
    expect(size(null, measured(policy(two)))).toEqual({ ...NOTHING, groups: counts(2, 0, 0), rules: counts(3, 0, 0) });
  });

  test('the size of a policy change counts groups, and the rules of changed, added and removed groups', () => {
    const after = [{ id: 'a', rules: [{ id: '1', ports: [81] }, { id: '3' }, { id: '4' }] }, { id: 'c' }];
    expect(size(measured(policy(two)), measured(policy(after)))).toEqual({
      groups: counts(1, 1, 1),
      rules: counts(3, 1, 2),
      other: false,
    });
  });

  test('the size of a policy change counts a group whose sources changed, without rules', () => {
    const after = policy(two);
    const [first, ...others] = after.source_groups;
    const changed = { ...after, source_groups: [{ ...first, sources: { cidrs: ['10.0.0.0/9'] } }, ...others] };
    expect(size(measured(policy(two)), measured(changed))).toEqual({ ...NOTHING, groups: counts(0, 1, 0) });
  });

  test('the size of a policy change is empty if only white space or the order of object members differs', () => {
    const reversed = (value: unknown): unknown =>
      Array.isArray(value)
        ? value.map(reversed)
        : typeof value === 'object' && value !== null
          ? Object.fromEntries(
              Object.entries(value)
                .reverse()
                .map(([name, member]) => [name, reversed(member)]),
            )
          : value;
    expect(size(measured(policy(two)), measured(policy(two), 'enforce', 2))).toEqual(NOTHING);
    expect(size(measured(policy(two)), measured(reversed(policy(two))))).toEqual(NOTHING);
  });

  test.each([
    ['the mode', measured(policy(two), 'audit'), 0],
    ['default_policy', measured(policy(two, { default_policy: 'allow' })), 0],
    ['the order of groups', measured(policy([...two].reverse())), 0],
    [
      'the order of groups by a priority',
      measured(policy([{ id: 'a', rules: two[0]?.rules ?? [], priority: 9 }, { id: 'b' }])),
      1,
    ],
    ['the order of rules', measured(policy([{ id: 'a', rules: [{ id: '2' }, { id: '1' }] }, { id: 'b' }])), 1],
  ])('the size of a policy change has `other` for a change of %s', (_, after, groups) => {
    expect(size(measured(policy(two)), after)).toEqual({ ...NOTHING, groups: counts(0, groups, 0), other: true });
  });

  test('the size of a policy change without `other` accounts for every group and rule of both revisions, and the opposite change has the inverse size', () => {
    const rules = fc.uniqueArray(
      fc.record({ id: fc.constantFrom('1', '2', '3'), ports: fc.constantFrom([80], [81]) }),
      { selector: ({ id }) => id },
    );
    const groups = fc.uniqueArray(fc.record({ id: fc.constantFrom('a', 'b', 'c', 'd'), rules }), {
      selector: ({ id }) => id,
    });
    const total = (of: readonly Group[]) => of.reduce((sum, { rules: own = [] }) => sum + own.length, 0);
    fc.assert(
      fc.property(groups, groups, (before, after) => {
        const [one, other] = [measured(policy(before)), measured(policy(after))];
        const there = size(one, other);
        const back = size(other, one);
        expect(before.length + there.groups.added - there.groups.removed).toBe(after.length);
        expect(total(before) + there.rules.added - there.rules.removed).toBe(total(after));
        const inverse = ({ added, changed, removed }: ReturnType<typeof counts>) => counts(removed, changed, added);
        expect(back).toEqual({ groups: inverse(there.groups), rules: inverse(there.rules), other: there.other });
        const isSame = JSON.stringify(policy(before)) === JSON.stringify(policy(after));
        expect(JSON.stringify(there) === JSON.stringify(NOTHING)).toBe(isSame);
      }),
      { numRuns: 500 },
    );
  });

  test('the size of a policy change is unknown for a text that is not JSON', () => {
    expect(measuredText(Buffer.from('{'), 'singleton', 'enforce')).toBeNull();
  });
});
