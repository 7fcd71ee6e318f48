import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
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
function nodeWith(make: (path: string) => unknown) {
  const folder = temporaryFolder();
  const path = join(folder, 'policy.yaml');
  make(path);
  const config = {
    version: 1,
    node: { id: 'node-a', data_dir: join(folder, 'data') },
    log: { level: 'info', format: 'json' },
    api: { listen: '127.0.0.1:0' },
    policy: { fallback: 'deny', file: path },
  };
  writeFileSync(join(folder, 'weir.yaml'), JSON.stringify(config));
  const [command, ...words] = weirCommand;
  const child = spawn(command, [...words, 'run', '--config', join(folder, 'weir.yaml')]);
  onTestFinished(() => void child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (log += String(chunk)));
  return {
    path,
    /** Returns the detail of the readiness check `policy_ready`. */
    detail: async (): Promise<string> => {
      const port = /"port":(\d+)/.exec(log)?.[1];
      const { checks } = (await (await fetch(`http://127.0.0.1:${port}/ready`)).json()) as {
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
