import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { weirCommand } from '#cli/tour/node-process.js';
import { eventually } from '#test/eventually.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

const MIB = 1024 * 1024;
const WAIT = { timeout: 30_000, interval: 20 };

/**
 * Starts a node without a datapath. Its setting `policy.file` is the path of `policy.yaml` in a new folder;
 * `make` first creates a file or another object at this path.
 */
function nodeWith(make: (path: string) => unknown, assertions: string | null = null) {
  const folder = temporaryFolder();
  const path = join(folder, 'policy.yaml');
  make(path);
  const assertionsPath = join(folder, 'assertions.yaml');
  if (assertions !== null) writeFileSync(assertionsPath, assertions);
  const config = {
    version: 1,
    node: { id: 'node-a', data_dir: join(folder, 'data') },
    log: { level: 'info', format: 'json' },
    api: { listen: '127.0.0.1:0' },
    policy: { fallback: 'deny', file: path, ...(assertions === null ? {} : { assertions_file: assertionsPath }) },
  };
  writeFileSync(join(folder, 'weir.yaml'), JSON.stringify(config));
  const [command, ...words] = weirCommand;
  const child = spawn(command, [...words, 'run', '--config', join(folder, 'weir.yaml')]);
  onTestFinished(() => void child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (log += String(chunk)));
  const url = (path_: string) => `http://127.0.0.1:${/"port":(\d+)/.exec(log)?.[1]}${path_}`;
  return {
    path,
    assertionsPath,
    log: () => log,
    request: async (method: string, at: string, body?: unknown) => {
      const token = readFileSync(join(folder, 'data', 'admin.token'), 'utf8').trim();
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
      const response = await fetch(url(at), {
        method,
        headers,
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return { status: response.status, body: (await response.json()) as Record<string, unknown> };
    },
    configure: (policy: object) =>
      writeFileSync(join(folder, 'weir.yaml'), JSON.stringify({ ...config, policy: { ...config.policy, ...policy } })),
    /** Returns the detail of the readiness check `policy_ready`. */
    detail: async (): Promise<string> => {
      const { checks } = (await (await fetch(url('/ready'))).json()) as {
        checks: { name: string; detail: string }[];
      };
      return checks.find(({ name }) => name === 'policy_ready')?.detail ?? '';
    },
    logged: (text: string) => eventually(() => expect(log).toContain(text), WAIT),
    /** Returns the peak resident memory of the node in MiB. */
    peak: () => Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1]) / 1024,
    stop: async () => {
      child.kill('SIGTERM');
      return (await ended)[0] as number | null;
    },
  };
}

it.each<[string, (path: string) => unknown, string]>([
  ['a FIFO', (path) => execFileSync('mkfifo', [path]), 'is a FIFO, not a regular file'],
  ['a link to /dev/zero', (path) => symlinkSync('/dev/zero', path), 'is a device, not a regular file'],
  ['a directory', (path) => mkdirSync(path), 'is a directory, not a regular file'],
  ['missing', () => {}, 'no such file or directory'],
  ['a dangling link', (path) => symlinkSync('/no/such/policy', path), 'no such file or directory'],
  [
    'a file of more than 64 MiB',
    (path) => {
      writeFileSync(path, '');
      truncateSync(path, 64 * MIB + 1);
    },
    'is larger than 65536 KiB',
  ],
])(
  'a node whose policy.file is %s logs the error, loads a valid replacement, and shuts down normally',
  async (_, make, reason) => {
    const node = nodeWith(make);
    await node.logged('the API listens');
    await node.logged(reason);
    expect(node.peak()).toBeLessThan(400);
    const next = `${node.path}.next`;
    writeFileSync(next, 'default_policy: deny\nsource_groups: []\n');
    if (existsSync(node.path)) rmSync(node.path, { recursive: true });
    renameSync(next, node.path);
    await node.logged('policy file written');
    expect(await node.stop()).toBe(0);
  },
);

it('a node whose policy.file becomes a FIFO logs the error, and still shuts down', async () => {
  const node = nodeWith((path) => writeFileSync(path, 'default_policy: deny\nsource_groups: []\n'));
  await node.logged('policy file written');
  rmSync(node.path);
  execFileSync('mkfifo', [node.path]);
  await node.logged('is a FIFO, not a regular file');
  expect(await node.stop()).toBe(0);
});

it('GET /ready has a warning about policy.file while the file is unreadable', async () => {
  const node = nodeWith((path) => writeFileSync(path, 'default_policy: deny\nsource_groups: []\n'));
  await node.logged('policy file written');
  await eventually(async () => expect(await node.detail()).toBe('a policy is active'), WAIT);
  const away = `${node.path}.away`;
  renameSync(node.path, away);
  await eventually(async () => {
    expect(await node.detail()).toMatch(
      /^a policy is active; warning: policy\.file is down since 20[^ ]+Z: read the policy file .*: no such file or directory$/,
    );
  }, WAIT);
  renameSync(away, node.path);
  await eventually(async () => expect(await node.detail()).toBe('a policy is active'), WAIT);
  expect(await node.stop()).toBe(0);
});

it('GET /ready reports a refused policy.file with the error code, and without text of the policy', async () => {
  const node = nodeWith((path) => writeFileSync(path, 'default_policy: perhaps\nsource_groups: []\n'));
  await node.logged('was not written');
  await eventually(async () => {
    expect(await node.detail()).toMatch(
      /warning: policy\.file is down since 20[^ ]+Z: the policy file .* was refused \(invalid_policy\); the log says why$/,
    );
  }, WAIT);
  writeFileSync(node.path, 'default_policy: deny\nsource_groups: []\n');
  await node.logged('policy file written');
  await eventually(async () => expect(await node.detail()).toBe('a policy is active'), WAIT);
  expect(await node.stop()).toBe(0);
});

const allowing = (...ports: readonly number[]) =>
  `default_policy: deny
source_groups:
  - id: lan
    mode: enforce
    sources: {cidrs: [10.0.0.0/8]}
    rules:
${ports.map((port) => `      - {id: p${port}, action: allow, match: {proto: tcp, dst_ports: [${port}]}}\n`).join('')}`;
const NO_SSH = 'assertions:\n  - {id: no-ssh, never: {from: [10.0.0.0/8], ports: [22]}}\n';
type Items = {
  readonly items: readonly { readonly id: string; readonly result: string }[];
  readonly updated_by: string;
};
const policyIn = async (node: ReturnType<typeof nodeWith>) =>
  JSON.stringify((await node.request('GET', '/api/v1/policy')).body);

it('the assertions of policy.assertions_file are in force before the policy of policy.file is checked', async () => {
  const node = nodeWith((path) => writeFileSync(path, allowing(80)), NO_SSH);
  await node.logged('policy file written');
  expect(node.log().indexOf('assertions file written')).toBeLessThan(node.log().indexOf('policy file written'));
  const list = (await node.request('GET', '/api/v1/assertions')).body as unknown as Items;
  expect(list).toMatchObject({ items: [{ id: 'no-ssh', result: 'holds' }], updated_by: 'policy.assertions_file' });

  writeFileSync(node.path, allowing(80, 22));
  await node.logged('the write would break the assertion no-ssh: lan/p22 passes 10.0.0.0/8 → any tcp/22');
  await eventually(
    async () => expect(await node.detail()).toContain('was refused (assertion_failed); the log says why'),
    WAIT,
  );
  expect(await policyIn(node)).not.toContain('p22');

  // Both files change: the new assertions are applied first, although the policy file may be noticed first.
  writeFileSync(node.path, allowing(443, 22));
  writeFileSync(node.assertionsPath, 'assertions:\n  - {id: no-telnet, never: {ports: [23]}}\n');
  await eventually(async () => expect(await policyIn(node)).toContain('p22'), WAIT);
  expect((await node.request('GET', '/api/v1/assertions')).body).toMatchObject({ items: [{ id: 'no-telnet' }] });
  await eventually(async () => expect(await node.detail()).toBe('a policy is active'), WAIT);
  expect(await node.stop()).toBe(0);
});

it('a policy in policy.file that an assertion refuses is written after the assertion is removed', async () => {
  const node = nodeWith((path) => writeFileSync(path, allowing(80)));
  await node.logged('policy file written');
  const list = [{ id: 'no-ssh', never: { ports: [22] } }];
  expect((await node.request('PUT', '/api/v1/assertions', { assertions: list })).status).toBe(200);
  writeFileSync(node.path, allowing(22));
  await node.logged('the write would break the assertion no-ssh');
  expect((await node.request('PUT', '/api/v1/assertions', { assertions: [] })).status).toBe(200);
  await eventually(async () => expect(await policyIn(node)).toContain('p22'), WAIT);
  expect(await node.stop()).toBe(0);
});

it('the policy in policy.file is not written while the file policy.assertions_file is not valid', async () => {
  const node = nodeWith((path) => writeFileSync(path, allowing(80)), 'assertions:\n  - {id: a, never: {to: [x]}}\n');
  await node.logged('/assertions/0/never/to/0');
  await eventually(async () => expect(await node.detail()).toContain('the assertions file'), WAIT);
  expect(await policyIn(node)).toBe('{}');
  writeFileSync(node.assertionsPath, NO_SSH);
  await node.logged('policy file written');
  expect(await node.stop()).toBe(0);
});

it('the policy in policy.file is checked with the present content of policy.assertions_file, also if the node has not noticed a change of that file yet', async () => {
  const former = NO_SSH.replace('22', '23');
  const node = nodeWith((path) => writeFileSync(path, allowing(80)), former);
  await node.logged('policy file written');
  // The size and the time of the file stay, so that the node does not notice the change.
  const { atime, mtime } = statSync(node.assertionsPath);
  writeFileSync(node.assertionsPath, NO_SSH);
  utimesSync(node.assertionsPath, atime, mtime);
  writeFileSync(node.path, allowing(80, 22));
  await node.logged('the write would break the assertion no-ssh');
  expect(node.log().match(/policy file written/g)).toHaveLength(1);
  expect(await node.stop()).toBe(0);
});

it('an API client may change the list of assertions although policy.assertions_file contains one; the next change of the file replaces it', async () => {
  const node = nodeWith((path) => writeFileSync(path, allowing(80)), NO_SSH);
  await node.logged('policy file written');
  expect((await node.request('PUT', '/api/v1/assertions', { assertions: [] })).status).toBe(200);
  writeFileSync(node.assertionsPath, `${NO_SSH}# changed\n`);
  await eventually(
    async () =>
      expect((await node.request('GET', '/api/v1/assertions')).body).toMatchObject({ items: [{ id: 'no-ssh' }] }),
    WAIT,
  );
  expect(await node.stop()).toBe(0);
});

it('a reload checks a new policy.file with the assertions of a new policy.assertions_file, and refuses both files if an assertion fails', async () => {
  const node = nodeWith((path) => writeFileSync(path, allowing(80)), NO_SSH);
  await node.logged('policy file written');
  const [policy, assertions] = [`${node.path}.new`, `${node.assertionsPath}.new`];
  writeFileSync(policy, allowing(22));
  writeFileSync(assertions, 'assertions:\n  - {id: still-no-ssh, never: {ports: [22]}}\n');
  node.configure({ file: policy, assertions_file: assertions });
  const refused = await node.request('POST', '/api/v1/config/reload');
  expect([refused.status, refused.body.detail]).toEqual([
    409,
    expect.stringMatching(/would be refused \(assertion_failed\): still-no-ssh: lan\/p22 passes /) as string,
  ]);
  writeFileSync(assertions, 'assertions: []\n');
  expect((await node.request('POST', '/api/v1/config/reload')).status).toBe(200);
  expect(await policyIn(node)).toContain('p22');
  expect((await node.request('GET', '/api/v1/assertions')).body).toMatchObject({ items: [] });
  expect(await node.stop()).toBe(0);
});
