import { describe, expect, test } from 'vitest';
import { analyse } from '#analysis/analyse.js';
import { policyDiff } from '#analysis/answer/policy-diff.js';
import { IPV4 } from '#analysis/engine/address-space.js';
import { itemAt } from '#arrays/read.js';
import { styleOf } from '#cli/output/style.js';
import { flowDifferenceText } from '#cli/policy/flow-difference.js';
import type { PolicyDiff } from '#contracts/analysis/policy-diff.js';
import type { PolicyConfig } from '#contracts/policy/policy-document.js';
import { type Draft, modelOf, OFFICE, officeAfter } from './office.js';

function diffTo(document: PolicyConfig): PolicyDiff {
  const answer = analyse([modelOf(OFFICE), modelOf(document)], { kind: 'diff', limit: 50 }, false);
  if (answer.kind !== 'diff') throw new Error('no diff');
  return answer.diff;
}

const textOf = (edit: (draft: Draft) => void): string[] =>
  flowDifferenceText(diffTo(officeAfter(edit)), styleOf({ colours: false }))
    .trimEnd()
    .split('\n')
    .filter((line) => line !== 'seen flows: no flows were looked at');

const groupAt = (draft: Draft, at: number) => itemAt(draft.source_groups, at);
const rulesOf = (draft: Draft, at = 1) => groupAt(draft, at).rules ?? [];
const ruleAt = (draft: Draft, at: number) => itemAt(rulesOf(draft), at);

describe('the text of `weir policy diff`', () => {
  test.each<[edit: string, change: (draft: Draft) => void]>([
    ['a port is opened', (draft) => ruleAt(draft, 2).match.dst_ports?.push(8080)],
    ['a port is closed', (draft) => ruleAt(draft, 2).match.dst_ports?.shift()],
    [
      'a host is added',
      (draft) =>
        rulesOf(draft).push({
          id: 'printer',
          action: 'allow',
          match: { dst_ips: ['10.4.0.9'], proto: 'tcp', dst_ports: [631] },
        }),
    ],
    ['a host joins a group', (draft) => groupAt(draft, 2).sources.cidrs?.push('10.9.1.7/32')],
    [
      'two rules change places without an effect',
      (draft) => rulesOf(draft).splice(0, 2, ruleAt(draft, 1), ruleAt(draft, 0)),
    ],
    [
      'a rule that allows everything comes first',
      (draft) => rulesOf(draft).unshift({ id: 'any', action: 'allow', match: {} }),
    ],
    [
      'a prefix is widened',
      (draft) => {
        ruleAt(draft, 1).match.dst_cidrs = ['10.3.0.0/16'];
      },
    ],
    [
      'a prefix is narrowed',
      (draft) => {
        ruleAt(draft, 1).match.dst_cidrs = ['10.3.0.0/25'];
      },
    ],
    [
      'the sources of a group are widened',
      (draft) => {
        groupAt(draft, 1).sources.cidrs = ['10.1.0.0/16'];
      },
    ],
    [
      'the default policy becomes allow',
      (draft) => {
        draft.default_policy = 'allow';
      },
    ],
    [
      'the default of a group is removed without an effect',
      (draft) => {
        delete groupAt(draft, 2).default_action;
      },
    ],
    [
      'a group is switched to audit',
      (draft) => {
        groupAt(draft, 1).mode = 'audit';
      },
    ],
    ['a rule is removed', (draft) => rulesOf(draft).splice(1, 1)],
    ['a group is removed', (draft) => draft.source_groups.splice(1, 1)],
    ['the group of the administrators is removed', (draft) => draft.source_groups.splice(0, 1)],
    [
      'SSH is denied for all sources',
      (draft) =>
        draft.source_groups.unshift({
          id: 'everyone',
          mode: 'enforce',
          sources: { cidrs: ['0.0.0.0/0'] },
          rules: [{ id: 'no-ssh', action: 'deny', match: { proto: 'tcp', dst_ports: [22] } }],
        }),
    ],
    [
      'a name is added',
      (draft) =>
        rulesOf(draft).push({
          id: 'git',
          action: 'allow',
          match: { dns_hostname: '*.git.example', proto: 'tcp', dst_ports: [22] },
        }),
    ],
    [
      'connections are inspected',
      (draft) => {
        ruleAt(draft, 2).match = { proto: 'tcp', dst_ports: [443], tls: { sni: ['*.example.com'] } };
      },
    ],
    [
      'an allow becomes a deny',
      (draft) => {
        ruleAt(draft, 2).action = 'deny';
      },
    ],
    ['the order of the groups is reversed', (draft) => draft.source_groups.reverse()],
    [
      'a rule gets another id',
      (draft) => {
        ruleAt(draft, 0).id = 'smtp';
      },
    ],
  ])('the text of `weir policy diff` has at most five lines if %s', (_edit, change) => {
    const lines = textOf(change);
    expect(lines.length).toBeLessThanOrEqual(5);
    expect(lines).toMatchSnapshot();
  });

  test('the text of `weir policy diff` with `--all` has every region with an example', () => {
    const diff = diffTo(officeAfter((draft) => draft.source_groups.splice(1, 1)));
    const text = flowDifferenceText(diff, styleOf({ colours: false }), { all: true });
    expect(text.match(/^closes /gm)).toHaveLength(diff.regions.length + 1);
    expect(text).toContain('closes lookup of *');
  });
});

describe('the comparison of two policies', () => {
  test('the comparison of two policies counts the flows of the regions that it does not list', () => {
    const after = modelOf(officeAfter((draft) => draft.source_groups.splice(1, 1)));
    const whole = diffTo(officeAfter((draft) => draft.source_groups.splice(1, 1)));
    const answer = analyse([modelOf(OFFICE), after], { kind: 'diff', limit: 1 }, false);
    if (answer.kind !== 'diff') throw new Error('no diff');
    const { regions, regions_omitted: omitted, flows_omitted: flows } = answer.diff;
    expect([regions.length, omitted]).toEqual([1, whole.regions.length - 1]);
    const others = whole.regions.slice(1).reduce((sum, region) => sum + BigInt(region.flows), 0n);
    expect(flows).toBe(others.toString());
  });

  test('the comparison of two policies says which sources are left if the limit of steps is reached', () => {
    const after = modelOf(officeAfter((draft) => draft.source_groups.splice(0, 2)));
    const whole = policyDiff(modelOf(OFFICE), after, { spaces: [IPV4], limit: 50, steps: 1_000_000 });
    const kinds = new Set<boolean>();
    for (let steps = 40; steps < 400; steps += 40) {
      const part = policyDiff(modelOf(OFFICE), after, { spaces: [IPV4], limit: 50, steps });
      kinds.add(part.complete);
      expect(part.left === null).toBe(part.complete);
      if (part.complete) expect(part).toEqual(whole);
      else expect(part.summary).toMatch(/; the comparison is not complete$/);
      expect(part.regions.every(({ effect }) => effect === 'closes')).toBe(true);
    }
    expect(kinds).toEqual(new Set([false, true]));
  });

  test('the comparison of two policies states a selector, a hostname and a TLS block as conditions', () => {
    const source = { integration: 'prod', pod_selector: { match_labels: { app: 'web' } } };
    const tls = { sni: ['api.example.com'] };
    const match = { dns_hostname: 'api.example.com', proto: 'tcp', dst_ports: [443], tls } as const;
    const diff = diffTo(
      officeAfter((draft) => {
        draft.source_groups.push({
          id: 'pods',
          mode: 'enforce',
          sources: { kubernetes: [source] },
          rules: [{ id: 'api', action: 'allow', match }],
        } as never);
      }),
    );
    const opened = diff.regions.filter(({ effect }) => effect === 'opens');
    expect(opened.map(({ conditions }) => conditions.map(({ kind }) => kind).sort())).toContainEqual([
      'hostname',
      'selected',
      'tls',
    ]);
  });

  test.each<[verdict: PolicyDiff['verdict'], change: (draft: Draft) => void]>([
    ['equal', (draft) => ruleAt(draft, 0).match.dst_ports?.push(25)],
    ['opens', (draft) => ruleAt(draft, 2).match.dst_ports?.push(8080)],
    ['closes', (draft) => ruleAt(draft, 2).match.dst_ports?.pop()],
    ['both', (draft) => ruleAt(draft, 2).match.dst_ports?.splice(0, 1, 8080)],
    [
      'neither',
      (draft) => {
        groupAt(draft, 0).mode = 'audit';
      },
    ],
  ])('the comparison of two policies has the verdict `%s`', (verdict, change) => {
    expect(diffTo(officeAfter(change)).verdict).toBe(verdict);
  });

  test('the comparison of two policies counts the flows of each cause', () => {
    const diff = diffTo(
      officeAfter((draft) => {
        ruleAt(draft, 2).match.dst_ports?.splice(0, 1, 8080, 8081);
        rulesOf(draft).splice(0, 1);
      }),
    );
    // 248 sources, every address, and 65,536 source ports.
    const ofPort = 248n * 2n ** 48n;
    const cause = { part: 'rule', source_group: 'office', opens: '0', closes: '0', others: '0', regions: 1 };
    expect(diff.causes).toEqual([
      { ...cause, change: 'changed', rule: 'web', opens: `${2n * ofPort}`, closes: `${ofPort}`, regions: 2 },
    ]);
    expect(diff.flows).toEqual({ opens: `${2n * ofPort}`, closes: `${ofPort}`, inspection: '0', audit: '0' });
  });

  test('the comparison of two policies names a rule that moved as the cause', () => {
    const any = { id: 'any', action: 'allow', match: {} } as const;
    const policies = [
      officeAfter((draft) => rulesOf(draft).push(any)),
      officeAfter((draft) => rulesOf(draft).unshift(any)),
    ];
    const answer = analyse(policies.map(modelOf), { kind: 'diff', limit: 50 }, false);
    if (answer.kind !== 'diff') throw new Error('no diff');
    expect(answer.diff.causes.map(({ change, rule }) => [change, rule])).toEqual([['moved', 'any']]);
  });

  test('the comparison of two policies states the conditions under which a flow does not change', () => {
    const { regions } = diffTo(
      officeAfter((draft) =>
        rulesOf(draft).push({ id: 'alt', action: 'allow', match: { proto: 'tcp', dst_ports: [8443] } }),
      ),
    );
    expect(regions.map(({ effect, conditions, unless }) => ({ effect, conditions, unless }))).toEqual([
      { effect: 'opens', conditions: [], unless: [[{ kind: 'hostname', pattern: 'api.example.com' }]] },
    ]);
  });

  test('the comparison of two policies states a deny for a selector once, and not for deny-only sources too', () => {
    const source = { integration: 'prod', pod_selector: { match_labels: { app: 'web' } } };
    const { regions } = diffTo(
      officeAfter((draft) =>
        draft.source_groups.unshift({
          id: 'pods',
          mode: 'enforce',
          sources: { kubernetes: [source] },
          rules: [{ id: 'no-web', action: 'deny', match: { proto: 'tcp', dst_ports: [80] } }],
        } as never),
      ),
    );
    expect(regions.map(({ effect, conditions }) => [effect, conditions.map(({ kind }) => kind)])).toEqual([
      ['closes', ['selected']],
      ['closes', ['selected']],
    ]);
  });

  test('the comparison of two policies that reaches the limit of steps names the sources that are left', () => {
    const after = modelOf(officeAfter((draft) => ruleAt(draft, 2).match.dst_ports?.push(8080)));
    const diff = policyDiff(modelOf(OFFICE), after, { spaces: [IPV4], limit: 5, steps: 40 });
    expect([diff.complete, diff.left?.networks, diff.verdict, diff.summary]).toEqual([
      false,
      ['10.1.0.0/24'],
      'equal',
      'no change was found; the comparison is not complete',
    ]);
  });

  test.each([
    ['api.example.com', 'other.org'],
    ['*.git.example', '*.other.org'],
  ])(
    'the comparison of two policies does not combine changes of DNS lookups for %s and %s into one name',
    (denied, allowed) => {
      const group = (id: string, mode: 'audit' | 'enforce', action: 'allow' | 'deny', dns_hostname: string) =>
        modelOf(
          officeAfter((draft) =>
            draft.source_groups.unshift({
              id,
              mode,
              sources: { cidrs: ['10.77.0.0/24'] },
              rules: [{ id: 'name', action, match: { dns_hostname } }],
            }),
          ),
        );
      const policies = [group('audited', 'audit', 'deny', denied), group('open', 'enforce', 'allow', allowed)];
      const answer = analyse(policies, { kind: 'diff', limit: 50 }, false);
      if (answer.kind !== 'diff') throw new Error('no diff');
      expect(answer.diff.lookups.map(({ effect, names }) => [effect, names])).toEqual([
        ['opens', allowed],
        ['closes', denied],
      ]);
    },
  );
});
