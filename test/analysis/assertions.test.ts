import { describe, expect, test } from 'vitest';
import { analyse } from '#analysis/analyse.js';
import type { AssertionResult } from '#contracts/analysis/assertion.js';
import { modelOf, OFFICE, officeAfter } from './office.js';

function resultsOf(assertions: readonly object[], policy = modelOf(OFFICE)): readonly AssertionResult[] {
  const answer = analyse([policy], { kind: 'assertions', document: { assertions }, limit: 3 }, false);
  if (answer.kind !== 'assertions') throw new Error(JSON.stringify(answer));
  return answer.results;
}

const ssh = { from: ['10.1.0.0/24'], to: ['10.9.0.0/24'], ports: [22] };

describe('an assertion', () => {
  test.each<[result: AssertionResult['result'], message: RegExp, assertion: object]>([
    ['broken', /^admins\/all passes 10\.1\.0\.0\/29 → 10\.9\.0\.0\/24 tcp\/22$/, { never: ssh }],
    ['holds', /^the assertion holds$/, { never: { ...ssh, from: ['10.1.0.128/25'] } }],
    [
      'holds',
      /^the assertion holds$/,
      { always: { from: { group: 'office' }, to: ['10.0.0.53'], proto: 'udp', ports: [53] } },
    ],
    [
      'broken',
      /^office\/no-smtp denies 10\.1\.0\.0\/24 except 10\.1\.0\.0\/29 → any tcp\/25$/,
      { always: { from: { group: 'office' }, ports: [25] } },
    ],
    ['holds', /^the assertion holds$/, { only: { from: ['10.1.0.0/24'], to: ['10.3.0.0/24'], ports: [445] } }],
    ['broken', /^admins\/all passes /, { only: { from: { group: 'servers' }, to: ['10.20.0.0/24'] } }],
    ['holds', /^the assertion holds$/, { always: { from: ['10.1.0.0/24'], name: 'api.example.com', ports: [8443] } }],
    [
      'broken',
      /denies .* under conditions|^default_policy denies/,
      { always: { from: ['10.1.0.128/25'], ports: [8443] } },
    ],
  ])('an assertion is %s with the message %s: %j', (result, message, assertion) => {
    const [found] = resultsOf([{ id: 'one', ...assertion }]);
    expect(found).toMatchObject({ id: 'one', result, message: expect.stringMatching(message) as string });
    expect(found?.regions.length === 0).toBe(result === 'holds');
  });

  test('an assertion about flows with `judge: enforced` counts a deny in audit mode (which passes the flow) as a deny', () => {
    const audited = modelOf(
      officeAfter((draft) => {
        for (const group of draft.source_groups) group.mode = 'audit';
      }),
    );
    const never = { from: ['10.1.0.128/25'], ports: [25] };
    const results = resultsOf(
      [
        { id: 'one', never },
        { id: 'two', never, judge: 'enforced' },
      ],
      audited,
    );
    expect(results.map(({ result }) => result)).toEqual(['broken', 'holds']);
  });

  test('an assertion that only the sources of a group pass applies to all other sources, also if the group has selectors', () => {
    const source = { integration: 'prod', pod_selector: { match_labels: { app: 'web' } } };
    const withPods = (groups: readonly object[]) =>
      modelOf(
        officeAfter((draft) => {
          draft.source_groups = groups as never;
        }),
      );
    const rules = [{ id: 'db', action: 'allow', match: { dst_ips: ['10.7.0.1'], proto: 'tcp', dst_ports: [5432] } }];
    const pods = { id: 'pods', mode: 'enforce', sources: { kubernetes: [source] }, rules };
    const only = { from: { group: 'pods' }, to: ['10.7.0.1'], ports: [5432] };
    expect(resultsOf([{ id: 'db', only }], withPods([pods]))[0]?.result).toBe('holds');
    const others = { id: 'others', mode: 'enforce', sources: { cidrs: ['10.8.0.0/24'] }, rules };
    expect(resultsOf([{ id: 'db', only }], withPods([pods, others]))[0]).toMatchObject({
      result: 'broken',
      message: 'others/db passes 10.8.0.0/24 → 10.7.0.1 tcp/5432',
    });
  });

  test.each<[assertions: unknown, pointer: string]>([
    [{}, '/assertions'],
    [{ assertions: [{ id: 'one' }] }, '/assertions/0'],
    [{ assertions: [{ id: 'one', only: { to: ['10.0.0.1'] } }] }, '/assertions/0'],
    [{ assertions: [{ id: 'one', never: { to: ['10.0.0.0/40'] } }] }, '/assertions/0/never/to/0'],
    [{ assertions: [{ id: 'one', never: { from: { group: 'nobody' } } }] }, '/assertions/0/never/from/group'],
    [
      {
        assertions: [
          { id: 'one', never: ssh },
          { id: 'one', always: ssh },
        ],
      },
      '/assertions/1/id',
    ],
  ])('a document %j with assertions is refused with the pointer %s', (document, pointer) => {
    const answer = analyse([modelOf(OFFICE)], { kind: 'assertions', document, limit: 3 }, false);
    if (answer.kind !== 'invalid_question') throw new Error(answer.kind);
    expect(answer.problems.map((problem) => problem.pointer)).toContainEqual(expect.stringMatching(`^${pointer}`));
  });
});
