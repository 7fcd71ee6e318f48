import { expect, it } from 'vitest';
import { run, serverThatAnswers } from './rig.js';

const TOKEN = { WEIR_TOKEN: 't' };
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

it('weir cluster init and recover with --dry-run ask for a dry run, and say that nothing was changed', async () => {
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
