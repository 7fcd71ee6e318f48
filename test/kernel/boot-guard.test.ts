import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chownSync,
  copyFileSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { emptyBootFile, unitWarnings } from '#dataplane/guard/boot-guard.js';
import { Guard, guardDropped } from '#dataplane/guard/nftables-guard.js';
import { topologyOfFile } from './topology-of-file.js';

const DROP_IN = 'deploy/systemd/nftables.service.d/00-weir.conf';
const NFTABLES = `[Service]
ExecStart=/usr/sbin/nft -f /etc/nftables.conf
ExecReload=/usr/sbin/nft -f /etc/nftables.conf
ExecStop=/usr/sbin/nft flush ruleset
`;
/** Sends datagrams to the server without a pause. */
const SENDER = `const s = require('node:dgram').createSocket('udp4');
  const send = () => s.send('x', 9, '${ADDRESSES.server}', () => setImmediate(send));
  send();`;

const topology = topologyOfFile('boot');
let folder: string;
let path: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-boot-'));
  path = join(folder, 'guard.nft');
});
afterEach(() => {
  execFileSync('nft', ['flush', 'ruleset']);
  rmSync(folder, { recursive: true });
});

const guardOf = (isOpen: boolean): Guard =>
  new Guard({
    interfaces: ['lan*'],
    markMask: 0x00f0_0000,
    reversePath: 'strict',
    policeLocal: false,
    ipv6: 'drop',
    bootGuard: { path, isOpen },
  });
const answers = async (address: string): Promise<boolean> =>
  (await topology.client.run('ping', '-n', '-c', '1', '-W', '1', address)).code === 0;

describe('the boot file of the guard', () => {
  test('the boot file of the guard (nftables rules) closes a policed interface when nft loads it, and leaves the node reachable', async () => {
    guardOf(false).make();
    execFileSync('nft', ['flush', 'ruleset']);
    expect(await answers(ADDRESSES.server)).toBe(true);
    execFileSync('nft', ['-f', path]);
    expect(await answers(ADDRESSES.server)).toBe(false);
    expect(guardDropped().packets).toBe(1n);
    expect(await answers(ADDRESSES.nodeLan)).toBe(true);
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  test('a node that finds its guard (nftables rules) in place writes the boot file of the guard again only if the content differs', () => {
    guardOf(false).make();
    const text = readFileSync(path, 'utf8');
    const { ino } = statSync(path);
    guardOf(false).make();
    expect(statSync(path).ino).toBe(ino);
    writeFileSync(path, 'older');
    guardOf(false).make();
    expect(readFileSync(path, 'utf8')).toBe(text);
  });

  test('the boot file of the guard (nftables rules) is empty with policy.fallback allow and after a detach', () => {
    guardOf(false).make();
    guardOf(true).make();
    expect(readFileSync(path, 'utf8')).toBe('');
    guardOf(false).make();
    expect(readFileSync(path, 'utf8')).not.toBe('');
    expect(emptyBootFile(path)).toBe(true);
    expect(readFileSync(path, 'utf8')).toBe('');
    expect(emptyBootFile(join(folder, 'absent'))).toBe(false);
  });

  test('a symbolic link or FIFO at the path of the boot file of the guard (nftables rules) is replaced by a file, and not followed', () => {
    const other = join(folder, 'other');
    writeFileSync(other, 'kept');
    symlinkSync(other, path);
    symlinkSync(other, `${path}.new`);
    chownSync(folder, 65_534, 65_534);
    expect(emptyBootFile(path)).toBe(true);
    const made = lstatSync(path);
    expect([made.isFile(), made.size, made.uid, made.mode & 0o777]).toEqual([true, 0, 65_534, 0o600]);
    rmSync(path);
    execFileSync('mkfifo', [path]);
    expect(emptyBootFile(path)).toBe(true);
    expect(lstatSync(path).isFile()).toBe(true);
    symlinkSync(other, `${path}.new`);
    guardOf(false).make();
    expect(readFileSync(other, 'utf8')).toBe('kept');
  });

  test('the boot file of the guard (nftables rules) rejects the mark bits of an earlier process, which the guard in the kernel still accepts', () => {
    const guard = (markMask: number): Guard =>
      new Guard({
        interfaces: ['lan*'],
        markMask,
        reversePath: 'strict',
        policeLocal: false,
        ipv6: 'drop',
        bootGuard: { path, isOpen: false },
      });
    const successor = guard(0x0f00_0000);
    successor.make();
    const own = readFileSync(path, 'utf8');
    guard(0x00f0_0000).make();
    successor.acceptEarlier();
    successor.make();
    expect(successor.acceptsEarlier).toBe(true);
    expect(readFileSync(path, 'utf8')).toBe(own);
  });

  test('the boot file of the guard (nftables rules) gets the bridge chain when the kernel no longer refuses that chain', async () => {
    // nftables lets no other process change a table that an open nft(8) owns.
    const owner = spawn('nft', ['-i'], { stdio: ['pipe', 'ignore', 'ignore'] });
    const ended = once(owner, 'exit');
    owner.stdin.write('add table bridge weir { flags owner; }\n');
    await expect.poll(() => spawnSync('nft', ['list', 'table', 'bridge', 'weir']).status).toBe(0);
    const guard = guardOf(false);
    guard.make();
    expect(guard.guardsBridges()).toBe(false);
    owner.stdin.end();
    await ended;
    guard.retryRefused(performance.now() + 59_000);
    expect(guard.guardsBridges()).toBe(false);
    guard.retryRefused(performance.now() + 61_000);
    expect([guard.guardsBridges(), guard.stands()]).toEqual([true, true]);
    expect(readFileSync(path, 'utf8')).toContain('add chain bridge weir guard');
  });

  test('a boot file of the guard (nftables rules) that the node cannot write causes a warning', () => {
    const guard = new Guard({
      interfaces: ['lan*'],
      markMask: 0x00f0_0000,
      reversePath: 'strict',
      policeLocal: false,
      ipv6: 'drop',
      bootGuard: { path: join(folder, 'absent', 'guard.nft'), isOpen: false },
    });
    guard.make();
    expect(guard.warnings()).toEqual([expect.stringMatching(/^the boot file of the guard is not written: ENOENT/)]);
    expect(guard.stands()).toBe(true);
  });
});

describe('the unit weir-guard.service', () => {
  const unit = (): string => readFileSync('deploy/systemd/weir-guard.service', 'utf8');
  const warning = (about: string): string =>
    `${about}: after a boot, the kernel forwards packets without a policy until Weir starts`;

  const unguarded = (keys: string, path: string): string =>
    `${keys} of nftables.service with its drop-ins does not load ${path}: if it restarts before Weir starts, the kernel forwards packets without a policy`;

  test('a node warns about the unit weir-guard.service unless it is enabled and loads the boot file of the data folder', () => {
    expect(unitWarnings('/var/lib/weir/guard.nft', [folder])).toEqual([warning('weir-guard.service is not enabled')]);
    mkdirSync(join(folder, 'sysinit.target.wants'));
    writeFileSync(join(folder, 'sysinit.target.wants', 'weir-guard.service'), unit());
    expect(unitWarnings('/var/lib/weir/guard.nft', [folder])).toEqual([]);
    const other = '/srv/weir/guard.nft';
    expect(unitWarnings(other, [folder])).toEqual([warning(`weir-guard.service does not load ${other}`)]);
    mkdirSync(join(folder, 'weir-guard.service.d'));
    const added = `[Service]\nExecStart=\nExecStart=/usr/sbin/nft -f ${other}\n`;
    writeFileSync(join(folder, 'weir-guard.service.d', 'override.conf'), added);
    expect(unitWarnings(other, [folder])).toEqual([]);
    expect(unitWarnings('/var/lib/weir/guard.nft', [folder])).toEqual([
      warning('weir-guard.service does not load /var/lib/weir/guard.nft'),
    ]);
  });

  test('a node warns about an enabled nftables.service that flushes the guard (nftables rules), unless the drop-in of Weir exists', () => {
    mkdirSync(join(folder, 'sysinit.target.wants'));
    writeFileSync(join(folder, 'sysinit.target.wants', 'weir-guard.service'), unit());
    writeFileSync(join(folder, 'sysinit.target.wants', 'nftables.service'), NFTABLES);
    const path = '/var/lib/weir/guard.nft';
    expect(unitWarnings(path, [folder])).toEqual([unguarded('ExecStart, ExecReload, ExecStop', path)]);
    mkdirSync(join(folder, 'nftables.service.d'));
    copyFileSync(DROP_IN, join(folder, 'nftables.service.d', '00-weir.conf'));
    expect(unitWarnings(path, [folder])).toEqual([]);
  });

  test("a node warns about an operator's drop-in of nftables.service that replaces the drop-in of the Weir package", () => {
    const packages = join(folder, 'packages');
    const own = join(folder, 'own');
    for (const path of [
      join(own, 'sysinit.target.wants'),
      ...[own, packages].map((at) => join(at, 'nftables.service.d')),
    ])
      mkdirSync(path, { recursive: true });
    copyFileSync(DROP_IN, join(packages, 'nftables.service.d', basename(DROP_IN)));
    writeFileSync(join(own, 'sysinit.target.wants', 'weir-guard.service'), unit());
    writeFileSync(join(own, 'sysinit.target.wants', 'nftables.service'), NFTABLES);
    const path = '/var/lib/weir/guard.nft';
    expect(unitWarnings(path, [own, packages])).toEqual([]);
    const override = join(own, 'nftables.service.d', 'override.conf');
    writeFileSync(override, '[Service]\nExecStart=\nExecStart=/usr/sbin/nft -f /etc/mine.nft\n');
    expect(unitWarnings(path, [own, packages])).toEqual([unguarded('ExecStart', path)]);
    writeFileSync(override, '[Service]\nExecStart=/usr/sbin/nft -f /etc/more.nft\n');
    expect(unitWarnings(path, [own, packages])).toEqual([]);
    // A drop-in file of the operator replaces the file of the same name in the package.
    rmSync(override);
    writeFileSync(join(own, 'nftables.service.d', basename(DROP_IN)), '[Service]\n');
    expect(unitWarnings(path, [own, packages])).toEqual([unguarded('ExecStart, ExecReload, ExecStop', path)]);
  });

  test('a node does not warn about nftables.service if a package has installed the drop-in of Weir', () => {
    const packages = join(folder, 'packages');
    mkdirSync(join(packages, 'nftables.service.d'), { recursive: true });
    copyFileSync(DROP_IN, join(packages, 'nftables.service.d', '00-weir.conf'));
    const own = join(folder, 'own');
    mkdirSync(join(own, 'sysinit.target.wants'), { recursive: true });
    writeFileSync(join(own, 'sysinit.target.wants', 'weir-guard.service'), unit());
    writeFileSync(join(own, 'sysinit.target.wants', 'nftables.service'), NFTABLES);
    expect(unitWarnings('/var/lib/weir/guard.nft', [own])).toHaveLength(1);
    expect(unitWarnings('/var/lib/weir/guard.nft', [own, packages])).toEqual([]);
  });
});

describe('the drop-in of nftables.service', () => {
  /** Returns a command of the drop-in as systemd starts it, with the paths of this test. */
  const commandOf = (key: string): string => {
    const line = readFileSync(DROP_IN, 'utf8').match(new RegExp(`^${key}=/bin/sh -c "(.*)"$`, 'm'))?.[1] ?? '';
    return line.replaceAll('\\"', '"').replaceAll('/var/lib/weir', folder).replaceAll('/etc/nftables.conf', rules());
  };
  const rules = (): string => join(folder, 'nftables.conf');
  const run = (key: string): void => void execFileSync('sh', ['-c', commandOf(key)], { stdio: 'ignore' });
  const tables = (): string[] => execFileSync('nft', ['list', 'tables'], { encoding: 'utf8' }).trim().split('\n');
  const OPERATOR = 'table inet mine';
  const GUARD = ['table inet weir', 'table bridge weir'];

  beforeEach(() => {
    writeFileSync(rules(), `#!/usr/sbin/nft -f\nflush ruleset\n${OPERATOR} { }\n`);
  });

  test.each(['ExecStart', 'ExecReload'])(
    "the setting %s in Weir's drop-in of nftables.service loads the rules of the operator, and the guard (nftables rules of Weir) if Weir has written it",
    (key) => {
      run(key);
      expect(tables()).toEqual([OPERATOR]);
      guardOf(false).make();
      run(key);
      expect(tables()).toEqual([OPERATOR, ...GUARD]);
      guardOf(true).make();
      run(key);
      expect(tables()).toEqual([OPERATOR]);
    },
  );

  test('ExecStop in the drop-in of nftables.service leaves only the guard (nftables rules of Weir), or nothing if there is no guard', () => {
    guardOf(false).make();
    run('ExecStart');
    run('ExecStop');
    expect(tables()).toEqual(GUARD);
    rmSync(path);
    run('ExecStop');
    expect(tables()).toEqual(['']);
  });

  test('the drop-in of nftables.service loads the rules of the operator alone if the kernel refuses the guard (nftables rules of Weir)', () => {
    writeFileSync(path, 'add table nosuchfamily weir\n');
    run('ExecStart');
    expect(tables()).toEqual([OPERATOR]);
    run('ExecStop');
    expect(tables()).toEqual(['']);
  });

  test('no packet of a policed interface is forwarded while the drop-in of nftables.service restarts and reloads nftables under load', async () => {
    guardOf(false).make();
    const { client, server } = topology;
    for (const [host, hook] of [
      [client, 'output'],
      [server, 'input'],
    ] as const) {
      await host.must(
        'nft',
        `table inet seen { counter datagrams { }; chain udp9 { type filter hook ${hook} priority 0; udp dport 9 counter name datagrams; }; }`,
      );
    }
    const count = async (host: typeof client): Promise<number> =>
      Number(/packets (\d+)/.exec(await host.must('nft', 'list', 'counter', 'inet', 'seen', 'datagrams'))?.[1]);
    const sender = client.start(process.execPath, ['-e', SENDER]);
    const isSending = async (): Promise<void> => {
      const before = await count(client);
      await expect.poll(() => count(client), { interval: 5 }).toBeGreaterThan(before + 20);
    };
    for (let round = 0; round < 20; round++) {
      for (const key of ['ExecStop', 'ExecStart', 'ExecReload']) run(key);
      await isSending();
    }
    expect(await count(server)).toBe(0);
    execFileSync('nft', ['flush', 'ruleset']);
    await expect.poll(() => count(server)).toBeGreaterThan(0);
    sender.kill('SIGKILL');
  });
});
