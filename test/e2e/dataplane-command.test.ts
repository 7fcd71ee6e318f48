import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { release } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { weirCommand } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { LAYOUT_VERSION } from '#contracts/datapath/datapath-numbers.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('cmd', [80, 81]);
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [80] } }]));
});
afterAll(() => rig?.remove());

async function command(...words: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const config = ['--config', join(rig.node.folder, 'weir.yaml')];
  return rig.topology.node.run(...weirCommand, 'dataplane', ...words, ...config);
}
type Status = {
  readonly owner: { readonly pid: number } | null;
  readonly hooks: readonly { interface: string; direction: string; by: string; pinPath: string }[];
  readonly unpoliced: readonly string[];
  readonly guardStands: boolean;
  readonly inForce: { readonly generation: number; readonly epoch: number; readonly since: string } | null;
  readonly maps: readonly { name: string; entries: number | null; capacity: number; bytes: number }[];
  readonly drops: Readonly<Record<string, { readonly packets: number }>>;
};
async function status(expected: 0 | 3 = 0): Promise<Status> {
  const { code, stdout } = await command('status', '--output', 'json');
  expect(code).toBe(expected);
  return JSON.parse(stdout) as Status;
}

test('`weir dataplane status` reports the hooks, the guard (nftables rules) and the policy generation in force, while the node runs and after it has stopped', async () => {
  expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', 'refused ETIMEDOUT']);
  const running = await status();
  const { pinPath } = rig.topology;
  expect({ ...running, maps: running.maps.filter(({ name }) => name === 'program'), drops: undefined }).toEqual(
    expect.objectContaining({
      owner: { pid: expect.any(Number) as number, command: expect.any(String) as string },
      hooks: ['lan0', 'wan0'].map((name) =>
        expect.objectContaining({ interface: name, direction: 'ingress', by: 'tcx', pinPath }),
      ),
      unpoliced: [],
      guardStands: true,
      forwarding: { way: 'direct', reason: 'no third-party hook' },
      inForce: expect.objectContaining({ generation: 1, epoch: 2 }) as object,
      maps: [
        {
          name: 'program',
          id: expect.any(Number) as number,
          type: 'array',
          entries: expect.any(Number) as number,
          capacity: 8_192,
          bytes: expect.any(Number) as number,
        },
      ],
    }),
  );
  expect(running.drops.policy_deny?.packets).toBeGreaterThan(0);

  await rig.node.end('SIGTERM');
  expect(await status()).toEqual(
    expect.objectContaining({
      owner: null,
      guardStands: true,
      forwarding: { way: 'stack', reason: 'no process looks for third-party hooks' },
      hooks: running.hooks,
      inForce: running.inForce,
    }),
  );
  const { stdout } = await command('status');
  expect(stdout).toContain('process     none: the kernel enforces the last policy\n');
  expect(stdout).toContain(`in force    generation 1, epoch 2, layout ${LAYOUT_VERSION}`);
  await rig.node.restart();
  await rig.node.ready();
});

test('/ready, /api/v1/node and `weir dataplane status` show the same activation time of the policy in force, also after a restart of the node', async () => {
  const inForceSince = async () =>
    ((await rig.node.request('GET', '/ready')).body as { in_force_since: string | null }).in_force_since;
  const node = async () =>
    (await rig.node.request('GET', '/api/v1/node')).body as Readonly<Record<string, unknown>> & { started_at: string };
  const before = (await status()).inForce;
  const nodeBefore = await node();
  expect(nodeBefore).toEqual({
    id: expect.any(String),
    version: expect.stringMatching(/^\d+\.\d+\.\d+/),
    kernel: release(),
    started_at: expect.stringMatching(/^20.*Z$/),
    cluster_enabled: false,
    enforcing: true,
    generation: before?.generation,
    in_force_since: before?.since,
  });
  expect(before?.since).toMatch(/^20.*Z$/);
  expect(await inForceSince()).toBe(before?.since);
  await rig.node.end('SIGTERM');
  await rig.node.restart();
  await rig.node.ready();
  const after = (await status()).inForce;
  expect(after?.epoch).toBeGreaterThan(before?.epoch ?? Number.NaN);
  expect([after?.since, await inForceSince()]).toEqual([before?.since, before?.since]);
  const nodeAfter = await node();
  expect(nodeAfter).toEqual({ ...nodeBefore, started_at: nodeAfter.started_at });
  expect(Date.parse(nodeAfter.started_at)).toBeGreaterThan(Date.parse(nodeBefore.started_at));
});

/**
 * Writes the configuration of a second node in the same network namespace, with its own data folder and API
 * port. Returns the path of the configuration.
 */
async function secondNode(pinPath: string): Promise<string> {
  const folder = join(rig.node.folder, 'second');
  mkdirSync(folder, { recursive: true });
  const config = {
    version: 1,
    node: { id: 'node-b', data_dir: join(folder, 'data') },
    log: { level: 'info', format: 'json' },
    api: { listen: '127.0.0.1:8081' },
    dataplane: { interfaces: ['lan0', 'wan0'], pin_path: pinPath },
  };
  const file = join(folder, 'weir.yaml');
  await writeFile(file, JSON.stringify(config));
  return file;
}

test('`weir dataplane status` exits with 3 while a configured interface has no BPF program of Weir', async () => {
  const config = join(rig.node.folder, 'others.yaml');
  const written = JSON.parse(await readFile(join(rig.node.folder, 'weir.yaml'), 'utf8')) as {
    dataplane: { interfaces: string[] };
  };
  const naming = async (...interfaces: string[]) => {
    await writeFile(config, JSON.stringify({ ...written, dataplane: { ...written.dataplane, interfaces } }));
    const words = ['dataplane', 'status', '--output', 'json', '--config', config];
    const { code, stdout } = await rig.topology.node.run(...weirCommand, ...words);
    return { code, unpoliced: (JSON.parse(stdout) as Status).unpoliced };
  };
  const { node } = rig.topology;
  await node.must('ip', 'link', 'add', 'lan1', 'type', 'veth', 'peer', 'name', 'other1');
  try {
    expect(await naming('lan0', 'wan*')).toEqual({ code: 0, unpoliced: [] });
    expect(await naming('lan*', 'wan0')).toEqual({ code: 3, unpoliced: ['lan1'] });
    expect(await naming('lan0', 'wan0', 'dmz*')).toEqual({ code: 0, unpoliced: [] });
    expect(await naming('lan0', 'wan0', 'dmz0')).toEqual({ code: 3, unpoliced: ['dmz0'] });
  } finally {
    await node.must('ip', 'link', 'del', 'lan1');
  }
});

test('`weir dataplane check` exits with 3 and names each configured interface that does not exist', async () => {
  const config = join(rig.node.folder, 'absent.yaml');
  const written = JSON.parse(await readFile(join(rig.node.folder, 'weir.yaml'), 'utf8')) as { dataplane: object };
  const checked = async (...interfaces: string[]) => {
    await writeFile(config, JSON.stringify({ ...written, dataplane: { ...written.dataplane, interfaces } }));
    const { code, stdout } = await rig.topology.node.run(...weirCommand, 'dataplane', 'check', '--config', config);
    return { code, lines: stdout.split('\n').filter((line) => /^FAILS|without a policy/.test(line)) };
  };
  expect(await checked('lan0', 'wan7', 'dmz*')).toEqual({
    code: 3,
    lines: [
      'FAILS    no interface has this name: wan7',
      'warning  the node forwards packets from wan0 without a policy: dataplane.interfaces does not contain it',
    ],
  });
  expect(await checked('lan0', 'wan0', 'dmz*')).toEqual({ code: 0, lines: [] });
});

test('`weir dataplane status` shows the state of the kernel even if the configuration file is not valid', async () => {
  const config = join(rig.node.folder, 'broken.yaml');
  await writeFile(config, 'version: 1\nnod: {}\n');
  const words = ['dataplane', 'status', '--config', config, '--pin-path', rig.topology.pinPath];
  const { code, stdout, stderr } = await rig.topology.node.run(...weirCommand, ...words);
  expect(code).toBe(0);
  expect(stdout).toContain(`in force    generation 1,`);
  expect(stderr).toContain('broken.yaml:2:1');
  expect(stderr).toContain(
    `warning: the kernel is shown without this file, with the pins in ${rig.topology.pinPath}\n`,
  );
});

test('a second `weir run` in the same network namespace exits with an error, and leaves hooks, policy, nftables rules and maps unchanged', async () => {
  const before = await status();
  const other = `${rig.topology.pinPath}-other`;
  for (const pinPath of [rig.topology.pinPath, other]) {
    const words = ['run', '--config', await secondNode(pinPath)];
    const { code, stderr } = await rig.topology.node.run(...weirCommand, ...words);
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringMatching(
        new RegExp(
          `^weir: process ${rig.node.pid} \\(.*\\) polices this network namespace: stop that process first \\(kill \\d+\\)\\n$`,
        ),
      ) as string,
    });
  }
  const kept = ({ owner, hooks, inForce, guardStands, maps }: Status) => ({
    ...{ owner, hooks, inForce, guardStands },
    maps: maps.map(({ name, capacity }) => ({ name, capacity })),
  });
  expect(kept(await status())).toEqual(kept(before));
  // The systemd unit makes the data folder before the node starts, so the folder may exist but must be empty.
  expect(existsSync(other) ? readdirSync(other) : []).toEqual([]);
  expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', 'refused ETIMEDOUT']);
});

test('a node process that starts while an earlier process still runs takes over the datapath after the earlier process is killed', async () => {
  const [command, ...words] = weirCommand;
  const config = await secondNode(rig.topology.pinPath);
  const second = rig.topology.node.start(command, [...words, 'run', '--config', config]);
  let log = '';
  second.stdout?.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  await expect.poll(() => log, { interval: 10 }).toContain('"dataplane lost"');
  await rig.node.end('SIGKILL');
  await expect.poll(async () => (await status()).owner?.pid).toBe(second.pid);
  second.kill('SIGTERM');
  await once(second, 'exit');
  await rig.node.restart();
  await rig.node.ready();
  expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', 'refused ETIMEDOUT']);
});

test('`weir dataplane status`, `stats`, `metrics` and `log` report a third-party nftables chain for forwarded packets', async () => {
  const { node } = rig.topology;
  await node.must('nft', 'add table inet mine; add chain inet mine some { type filter hook forward priority 10; }');
  const other = { way: 'stack', reason: 'nftables chain inet mine some' };
  const counted = async (): Promise<unknown> => {
    const { body } = await rig.node.request('GET', '/api/v1/stats');
    return (body as { readonly dataplane: { readonly forwarding: unknown } }).dataplane.forwarding;
  };
  await expect.poll(counted).toEqual(other);
  expect((await command('status')).stdout).toContain('forwarding  stack: nftables chain inet mine some\n');
  const { text } = await rig.node.request('GET', '/metrics');
  expect(text).toContain('\nweir_dataplane_direct{family="ipv4"} 0\n');
  await node.must('nft', 'delete table inet mine');
  await expect.poll(counted).toEqual({ way: 'direct', reason: 'no third-party hook' });
  const log = (await rig.node.log()).split('\n').filter((line) => line.includes('"forwarding changed"'));
  expect(log.slice(-2).map((line) => JSON.parse(line) as object)).toEqual([
    expect.objectContaining(other),
    expect.objectContaining({ way: 'direct' }),
  ]);
});

test('a node whose data folder was deleted still enforces the policy in the kernel until the next policy write', async () => {
  await rig.node.end('SIGTERM');
  rmSync(join(rig.node.folder, 'data'), { recursive: true });
  await rig.node.restart();
  await rig.node.ready({ except: ['policy_ready'] });
  expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['open', 'refused ETIMEDOUT']);
  const { body } = await rig.node.request('GET', '/ready');
  const check = (body as { checks: { name: string; ok: boolean; detail: string }[] }).checks.find(
    ({ name }) => name === 'policy_ready',
  );
  expect(check?.ok).toBe(false);
  expect(check?.detail).toContain(
    'the kernel enforces generation 1, but the newest generation in the data folder is 0',
  );
  const sentence =
    'the active policy is not in force: the kernel enforces generation 1, and the data folder is an older or another one; see `weir status`';
  const packet = ['--src', ADDRESSES.client, '--dst', ADDRESSES.server, '--dst-port', '80'];
  const told = async (...words: string[]) => {
    const to = ['--config', join(rig.node.folder, 'weir.yaml')];
    const { stdout, stderr } = await rig.topology.node.run(...weirCommand, 'policy', ...words, ...to);
    return { first: stdout.split('\n')[0], stderr };
  };
  expect((await told('explain', ...packet)).first).toBe(sentence);
  for (const words of [['list'], ['get']]) expect((await told(...words)).stderr).toContain(`warning: ${sentence}\n`);
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [81] } }]));
  await rig.node.ready();
  expect((await told('explain', ...packet)).first).toMatch(/^deny/);
  expect((await told('list')).stderr).toBe('');
  expect(await Promise.all([rig.tcp(80), rig.tcp(81)])).toEqual(['refused ETIMEDOUT', 'open']);
  expect((await status()).inForce).toEqual(expect.objectContaining({ generation: 2 }));
});

test('`weir dataplane detach` names the systemd unit to stop if the node runs in a unit, because systemd restarts a killed node', async () => {
  const mount = /^\S+ (\S+) cgroup2 /m.exec(await readFile('/proc/self/mounts', 'utf8'))?.[1] ?? '';
  const slice = join(mount, `weir-${process.pid}.slice`);
  const unit = join(slice, 'weir.service');
  mkdirSync(unit, { recursive: true });
  try {
    await writeFile(join(unit, 'cgroup.procs'), `${rig.node.pid}`);
    expect((await command('detach')).stderr).toMatch(
      /^weir: process \d+ \(.*\) polices this network namespace: stop that process first \(systemctl stop weir.service\)\n$/,
    );
  } finally {
    await writeFile(join(mount, 'cgroup.procs'), `${rig.node.pid}`);
    rmdirSync(unit);
    rmdirSync(slice);
  }
});

test('`weir dataplane detach` fails while a node runs; after the node has stopped, it removes the hooks, the pinned maps and the guard (nftables rules)', async () => {
  const refused = await command('detach');
  expect({ code: refused.code, stdout: refused.stdout }).toEqual({ code: 1, stdout: '' });
  expect(refused.stderr).toMatch(
    /^weir: process \d+ \(.*\) polices this network namespace: stop that process first \(kill \d+\)\n$/,
  );
  expect(await rig.tcp(80)).toBe('refused ETIMEDOUT');

  await rig.node.end('SIGTERM');
  expect(await command('detach')).toEqual({
    code: 0,
    stderr: '',
    stdout: [
      'removed the program on ingress of lan0',
      'removed the program on ingress of wan0',
      `removed ${rig.topology.pinPath}/maps-1`,
      'removed the guard',
      'emptied the boot file of the guard',
      'the dataplane is detached: this node is unpoliced',
      '',
    ].join('\n'),
  });
  expect(await rig.tcp(80)).toBe('open');
  expect(await status(3)).toEqual(
    expect.objectContaining({ owner: null, hooks: [], unpoliced: ['lan0', 'wan0'], inForce: null }),
  );
  expect((await command('detach')).stdout).toBe(
    'nothing was attached\nthe dataplane is detached: this node is unpoliced\n',
  );
});

test('`weir dataplane detach` tells how to prevent the next boot from enforcing again if the unit of the node is enabled', async () => {
  const folder = join(rig.node.folder, 'bin');
  mkdirSync(folder);
  await writeFile(join(folder, 'systemctl'), '#!/bin/sh\ntest "$*" = "is-enabled --quiet weir.service"\n', {
    mode: 0o755,
  });
  const path = `PATH=${folder}:${process.env.PATH}`;
  const config = ['--config', join(rig.node.folder, 'weir.yaml')];
  const { stdout } = await rig.topology.node.run('env', path, ...weirCommand, 'dataplane', 'detach', ...config);
  expect(stdout.split('\n').slice(-2)).toEqual([
    'weir.service is enabled: the next boot enforces the policy again, unless you run: systemctl disable weir.service',
    '',
  ]);
});
