import { expect, it } from 'vitest';
import { run, serverThatAnswers, TOKEN } from './cli-run.js';

const CLUSTER = {
  enabled: true,
  node_id: 'node-a',
  cluster_id: null,
  connected: true,
  leader: null,
  generation: 7,
  revision: 42,
  members: null,
};

it('`weir cluster init` and `weir cluster recover` with --dry-run ask for a dry run, and say that nothing was changed', async () => {
  const answer = { status: 200, body: { ...CLUSTER, dry_run: true } };
  const { url, asked } = await serverThatAnswers(answer, answer, { status: 200, body: CLUSTER });
  const commands = [['init', '--dry-run'], ['recover', '--keep', 'store', '--dry-run'], ['init']];
  const runs = [];
  for (const command of commands) runs.push(await run(['cluster', ...command, '--server', url], TOKEN));
  expect(asked.map(({ method, path }) => `${method} ${path}`)).toEqual([
    'POST /api/v1/cluster/init?dry_run=true',
    'POST /api/v1/cluster/recover?dry_run=true',
    'POST /api/v1/cluster/init',
  ]);
  expect(runs.map(({ code, out }) => [code, out.startsWith('This was a dry run: nothing was changed.\n')])).toEqual([
    [0, true],
    [0, true],
    [0, false],
  ]);
});

it.each([
  ['reachable', []],
  ['not connected', null],
])('`weir cluster status` shows etcd as %s before the cluster is created', async (state, members) => {
  const { url } = await serverThatAnswers({ status: 200, body: { ...CLUSTER, connected: false, members } });
  const { out } = await run(['cluster', 'status', '--server', url], TOKEN);
  expect(out).toMatch(new RegExp(`^etcd +${state}$`, 'm'));
});

it.each([
  ['enforce', 'enforce', null],
  ['enforce', 'drop', 'The nodes differ in dataplane.ipv6: enforce on a, not on b, which refuse a policy with IPv6.'],
  ['enforce', null, 'The nodes differ in dataplane.ipv6: enforce on a, not on b, which refuse a policy with IPv6.'],
  ['drop', 'pass', null],
])(
  '`weir cluster status` says whether some nodes alone enforce IPv6 policies (%s, %s)',
  async (first, second, said) => {
    const member = (id: string, ipv6: string | null) => ({
      ...{ id, ipv6, address: '10.0.0.1:7443', version: '1.0.0', generation: 7, since: '2026-01-31T12:00:00.000Z' },
      leads: false,
    });
    const members = [member('a', first), member('b', second)];
    const { url } = await serverThatAnswers({ status: 200, body: { ...CLUSTER, members } });
    const { out } = await run(['cluster', 'status', '--server', url], TOKEN);
    expect(out.split('\n').find((line) => line.startsWith('The nodes')) ?? null).toBe(said);
  },
);

it('`weir cluster nodes` shows by how many seconds the clock of a node differs', async () => {
  const node = (id: string, offset: number | null, failing: readonly string[] = []) => ({
    ...{ node_id: id, address: '10.0.0.1:7443', version: '1.0.0', joined_at: '2026-01-31T12:00:00.000Z' },
    ...{ state: 'ready', error: null, generation: 7, started_at: null },
    ...{ failing_checks: failing, clock_offset: offset },
  });
  const items = [node('a', 0), node('b', 61), node('c', -1, ['dns']), node('d', null)];
  const { url } = await serverThatAnswers({ status: 200, body: { items } });
  const { out } = await run(['cluster', 'nodes', '--server', url], TOKEN);
  const details = out.trimEnd().split('\n').slice(1);
  expect(details.map((line) => line.split(/ {2,}/).slice(6).join())).toEqual([
    '',
    'clock 61 s ahead',
    'dns, clock 1 s behind',
    '',
  ]);
});
