import { expect, test } from 'vitest';
import { STEPS } from '#observe/metrics/stats-series.js';
import { fakeManagement } from './fake-management.js';
import { rig } from './rig.js';

const NAMES = [
  ...['allow', 'deny', 'audit', 'flowsOpened', 'queriesAllow', 'queriesDeny', 'tlsAllow', 'tlsDeny', 'tlsAudit'],
  ...['intercepted', 'requestsAllow', 'requestsDeny', 'requestsAudit', 'activeFlows', 'connections'],
] as const;

/** A node whose series have a value of their own each, and a step that was not measured. */
const withSeries = async () => {
  const asked: number[] = [];
  const answer = await rig(
    {},
    fakeManagement({
      statsSeries: (steps) => {
        asked.push(steps);
        return {
          fromMs: Date.parse('2026-01-31T11:59:40.000Z'),
          toMs: Date.parse('2026-01-31T12:00:00.000Z'),
          series: Object.fromEntries(NAMES.map((name, at) => [name, [null, at]])) as never,
          drops: { malformed: [null, 99] },
        };
      },
    }),
  );
  return { ...answer, asked };
};

test('the stats series have the members of the stats, with one value or null per step', async () => {
  const { ask, asked } = await withSeries();
  const answer = await ask('GET', '/api/v1/stats/series');
  expect([answer.statusCode, answer.json()]).toEqual([
    200,
    {
      step_seconds: 10,
      from: '2026-01-31T11:59:40.000Z',
      to: '2026-01-31T12:00:00.000Z',
      dataplane: {
        packets: { allow: [null, 0], deny: [null, 1], audit: [null, 2] },
        drops: { malformed: [null, 99] },
        flows_opened: [null, 3],
        active_flows: [null, 13],
      },
      dns: { queries_allow: [null, 4], queries_deny: [null, 5] },
      tls: {
        allow: [null, 6],
        deny: [null, 7],
        audit: [null, 8],
        intercepted: [null, 9],
        connections: [null, 14],
      },
      http: { allow: [null, 10], deny: [null, 11], audit: [null, 12] },
    },
  ]);
  expect(asked).toEqual([STEPS]);
});

test('the query parameter `steps` selects the newest steps; more than an hour is refused', async () => {
  const { ask, asked } = await withSeries();
  expect((await ask('GET', '/api/v1/stats/series?steps=2')).statusCode).toBe(200);
  const refused = await Promise.all(
    ['0', '361', '', 'all'].map(async (steps) => (await ask('GET', `/api/v1/stats/series?steps=${steps}`)).statusCode),
  );
  expect([asked, refused]).toEqual([[2], [400, 400, 400, 400]]);
});
