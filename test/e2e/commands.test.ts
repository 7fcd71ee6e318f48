import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { weirCommand } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { run } from '#test/cli/cli-run.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('commands', [80, 81], { dataplane: { pickup: '0s' } });
});
afterAll(() => rig?.remove());

const cli = async (words: readonly string[], input = '') =>
  run([...words, '--server', rig.node.url], { WEIR_TOKEN: await rig.node.token() }, { input });
const fileWith = (name: string, text: string): string => {
  const file = join(rig.node.folder, name);
  writeFileSync(file, text);
  return file;
};
const policy = (port: number, mode = 'enforce') => `mode: ${mode}
name: office
policy:
  default_policy: deny
  source_groups:
    - id: clients
      sources:
        ips: [${ADDRESSES.client}]
      rules:
        - id: web
          action: allow
          match:
            proto: tcp
            dst_ports: [${port}]
`;

test('`weir policy apply` puts a policy file in force, and `weir policy get` prints a file that `apply` accepts again', async () => {
  const before = await cli(['status']);
  expect([before.code, before.out.split('\n')[1]]).toEqual([
    3,
    'policy      no policy is active: policy.fallback decides',
  ]);
  expect(await rig.tcp(80)).toMatch(/^(refused|silent|timeout|error)/);

  const file = fileWith('office.yaml', policy(80));
  const applied = await cli(['policy', 'apply', '-f', file, '--wait']);
  expect(applied).toEqual({
    code: 0,
    out: expect.stringMatching(
      /^office \(enforce\), revision 1: in force, generation 1\nETag ".+\.1"\nproved by \d+ packets of \d+ classes\nthe node is ready\n$/,
    ),
    err: '',
  });
  expect([await rig.tcp(80), await rig.udp(81)]).toEqual(['open', 'silent 1']);
  expect((await cli(['status'])).code).toBe(0);

  const { out } = await cli(['policy', 'get']);
  const again = fileWith('again.yaml', out);
  expect(await cli(['policy', 'diff', '--text', '-f', again])).toEqual({
    code: 0,
    out: `${again} has the same content as office\n`,
    err: '',
  });
  const etag = /ETag: (.+)/.exec(out)?.[1] ?? '';
  expect((await cli(['policy', 'apply', '-f', again, '--if-match', etag])).code).toBe(0);
  const stale = await cli(['policy', 'apply', '-f', '-', '--if-match', etag], out);
  expect([stale.code, stale.err]).toEqual([1, expect.stringContaining('read the policy again with `weir policy get`')]);
});

test('`weir policy diff`, `explain` and `apply --dry-run` show the effect of another policy and change nothing', async () => {
  const file = fileWith('other.yaml', policy(81, 'audit'));
  expect(await cli(['policy', 'diff', '--text', '-f', file])).toEqual({
    code: 3,
    out: `mode: enforce → audit
~ group clients
    mode: enforce → audit
  ~ rule web
      match.dst_ports: -80 +81
`,
    err: '',
  });
  const packet = ['policy', 'explain', '--src', ADDRESSES.client, '--dst', ADDRESSES.server, '--dst-port', '81'];
  expect((await cli(packet)).out.split('\n')[0]).toBe('deny');
  expect((await cli([...packet, '-f', file])).out.split('\n')[0]).toBe('allow by group clients, rule web');
  expect((await cli(['policy', 'apply', '-f', file, '--dry-run'])).code).toBe(0);
  expect(await rig.tcp(80)).toBe('open');
});

test('`weir policy activate` puts a stored policy in force, and `apply` replaces another active policy only with --replace', async () => {
  const home = fileWith('home.yaml', policy(81).replace('office', 'home'));
  const chance = await cli(['policy', 'apply', '-f', home]);
  expect([chance.code, chance.err]).toEqual([1, expect.stringContaining('the policy office is active')]);
  expect(await rig.tcp(80)).toBe('open');
  expect((await cli(['policy', 'apply', '-f', home, '--replace'])).err).toContain('[activity_taken]');
  expect(await rig.tcp(81)).toBe('open');
  expect(await rig.tcp(80)).not.toBe('open');
  const { out: before } = await cli(['policy', 'get', '--name', 'office']);
  const activated = await cli(['policy', 'activate', 'Office', '--wait', '--output', 'json']);
  expect([activated.code, activated.err]).toEqual([0, '']);
  expect(JSON.parse(activated.out)).toMatchObject({
    record: { name: 'office', revision: 2, active: true },
    warnings: [{ code: 'activity_taken' }],
  });
  expect(await rig.tcp(80)).toBe('open');
  const { out: after } = await cli(['policy', 'get', '--name', 'office']);
  expect(after).toBe(before.replace('not active', 'active'));
  for (const form of ['yaml', 'json']) {
    const { out } = await cli(['policy', 'get', '--output', form]);
    expect((await cli(['policy', 'apply', '-f', '-'], out)).code).toBe(0);
    const { out: again } = await cli(['policy', 'get', '--output', form]);
    expect(again.replace(/^#.*\n/gm, '')).toBe(out.replace(/^#.*\n/gm, ''));
  }
});

test('`weir policy apply` reports the problems of a policy file with line numbers', async () => {
  const wrong = policy(80).replace('dst_ports: [80]', 'dst_prots: [80]').replace('action: allow', 'action: alow');
  const file = fileWith('wrong.yaml', wrong);
  const { code, err } = await cli(['policy', 'apply', '-f', file]);
  const rule = '/policy/source_groups/0/rules/0';
  expect([code, err.split('\n').slice(0, 3).sort()]).toEqual([
    1,
    [
      `${file}:11:19: action must be "allow" or "deny". (${rule}/action)`,
      `${file}:14:13: There is no field "dst_prots" here (did you mean "dst_ports"?). (${rule}/match/dst_prots)`,
      `weir: ${file} was refused: 2 problems`,
    ],
  ]);
});

test('GET /metrics counts policy writes by outcome, the durations of the phases of a policy write, and the writes of the store', async () => {
  const { text } = await rig.node.request('GET', '/metrics');
  const value = (series: string) =>
    Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${series} `))
        ?.split(' ')[1],
    );
  expect(value('weir_policy_writes_total{outcome="written"}')).toBe(6);
  expect(value('weir_policy_writes_total{outcome="precondition_failed"}')).toBe(1);
  expect(value('weir_policy_writes_total{outcome="invalid_policy"}')).toBe(1);
  expect(value('weir_policy_phase_duration_seconds_count{phase="flip"}')).toBe(6);
  for (const phase of ['write', 'compile', 'stage', 'explain'])
    expect(value(`weir_policy_phase_duration_seconds_sum{phase="${phase}"}`)).toBeGreaterThan(0);
  expect(value('weir_store_writes_total{outcome="written"}')).toBeGreaterThanOrEqual(2);
  expect(value('weir_dataplane_sweep_age_seconds')).toBeLessThan(60);
});

test('bash completion offers the policies, source groups and rules of the node', async () => {
  const { out: script } = await run(['completion', 'bash']);
  const env = { ...process.env, WEIR_TOKEN: await rig.node.token() };
  const offered = async (...words: string[]): Promise<string[]> => {
    const asking = `${script}\nCOMP_WORDS=("$@"); COMP_LINE="$*"; COMP_CWORD=$(( $# - 1 )); _weir; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const line = [
      weirCommand.at(-1) ?? '',
      words[0] ?? '',
      words[1] ?? '',
      '--server',
      rig.node.url,
      ...words.slice(2),
    ];
    const { stdout } = await promisify(execFile)('bash', ['--norc', '-c', asking, 'bash', ...line], { env });
    return stdout.trimEnd().split('\n');
  };
  expect(await offered('policy', 'get', '--name', 'off')).toEqual(['office']);
  expect(await offered('flows', 'list', '--group', '')).toEqual(['clients']);
  expect(await offered('flows', 'list', '--rule', '')).toEqual(['web']);
});

test('`weir policy apply` accepts the output of `weir policy get` for a policy in singleton form, and writes to the same record', async () => {
  const { out: before } = await cli(['policy', 'get']);
  const plain = JSON.stringify(policyOf([{ match: { proto: 'tcp', dst_ports: [81] } }]));
  expect((await cli(['policy', 'apply', '--replace', '-f', '-'], plain)).code).toBe(0);
  expect((await cli(['policy', 'apply', '--name', 'home', '-f', '-'], policy(443))).code).toBe(0);
  const { out } = await cli(['policy', 'get', '--name', 'office', '--output', 'json']);
  expect(JSON.parse(out)).toMatchObject({ form: 'singleton', name: 'office' });
  const applied = await cli(['policy', 'apply', '--replace', '-f', '-', '--output', 'json'], out.replace('81', '80'));
  expect(JSON.parse(applied.out)).toMatchObject({ record: { name: 'office', form: 'singleton', active: true } });
  const { out: active } = await cli(['policy', 'get', '--output', 'json']);
  expect(JSON.parse(active)).toEqual(policyOf([{ match: { proto: 'tcp', dst_ports: [80] } }]));
  expect((await cli(['policy', 'apply', '-f', '-'], before)).code).toBe(0);
});

test('`weir performance-mode` switches performance mode, and `weir policy delete` deletes the active policy', async () => {
  expect((await cli(['performance-mode', 'off'])).out).toBe('performance mode is off (set for this node)\n');
  expect(await cli(['findings'])).toEqual({
    code: 1,
    out: '',
    err: expect.stringContaining('→ run `weir performance-mode on` first'),
  });
  expect((await cli(['performance-mode', 'on'])).code).toBe(0);
  expect((await cli(['policy', 'delete', '--name', 'home'])).out).toBe('home deleted\n');
  expect((await cli(['policy', 'delete', '--name', 'office'])).out).toBe(
    'office deleted\nnone is active now: policy.fallback decides\n',
  );
  expect((await cli(['policy', 'list', '--output', 'json'])).out).toBe('{\n  "items": []\n}\n');
});

test('`weir policy history` and `diff` show what changed, and `rollback` puts an earlier revision in force for the next packet, also after a restart', async () => {
  const history = async () => {
    const { out, err } = await cli(['policy', 'history', 'audited', '-o', 'json']);
    expect(err).toBe('');
    type Rows = { items: { revision: number; via: string; comment: string | null; of_revision: number | null }[] };
    return (JSON.parse(out) as Rows).items.map(({ revision, via, comment, of_revision: of }) => [
      revision,
      via,
      comment,
      of,
    ]);
  };
  const text = (port: number) => policy(port).replace('office', 'audited');
  const apply = ['policy', 'apply', '-f', '-', '--replace'];
  await cli([...apply, '-m', 'CHG-1: open the printers'], text(80));
  await cli([...apply, '-m', 'CHG-2: move them'], text(81));
  expect(await rig.tcp(81)).toBe('open');
  expect(await cli(['policy', 'diff', '--text', '--to', '2'])).toMatchObject({
    code: 3,
    out: '~ group clients\n  ~ rule web\n      match.dst_ports: -80 +81\n',
  });
  const { out: first } = await cli(['policy', 'get', '--revision', '1', '-o', 'json']);
  expect(JSON.parse(first)).toMatchObject({ policy: { source_groups: [{ rules: [{ match: { dst_ports: [80] } }] }] } });
  expect((await cli(['policy', 'rollback', '1', '--dry-run'])).code).toBe(0);
  expect(await rig.tcp(81)).toBe('open');
  expect(await cli(['policy', 'rollback', '1', '-m', 'they did not print'])).toMatchObject({
    code: 0,
    out: expect.stringContaining('audited (enforce), revision 3: in force'),
  });
  expect(await rig.tcp(80)).toBe('open');
  expect(await rig.tcp(81)).not.toBe('open');
  const rows = [
    [3, 'rollback', 'they did not print', 1],
    [2, 'write', 'CHG-2: move them', null],
    [1, 'write', 'CHG-1: open the printers', null],
  ];
  expect(await history()).toEqual(rows);
  await rig.node.restart();
  await rig.node.ready();
  expect(await history()).toEqual(rows);
  expect(await rig.tcp(80)).toBe('open');
  expect((await cli(['policy', 'diff', '--text', '--from', '1'])).code).toBe(0);
});
