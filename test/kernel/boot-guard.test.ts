import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { ADDRESSES, createTopology, type Topology } from '#cli/topology.js';
import { emptyBootFile, unitWarnings } from '#dataplane/guard/boot-guard.js';
import { Guard, guardDropped } from '#dataplane/guard/nftables-guard.js';
import { enterNamespace } from './namespace.js';

let topology: Topology;
let leave: () => void;
let folder: string;
let path: string;

beforeAll(async () => {
  topology = await createTopology('boot');
  leave = enterNamespace(topology.node.name);
}, 60_000);
afterAll(async () => {
  leave();
  await topology.remove();
});
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-boot-'));
  path = join(folder, 'guard.nft');
});
afterEach(() => {
  execFileSync('nft', ['flush', 'ruleset']);
  rmSync(folder, { recursive: true });
});

const guardOf = (isOpen: boolean): Guard =>
  new Guard({ interfaces: ['lan*'], markMask: 0x00f0_0000, reversePath: 'strict', bootGuard: { path, isOpen } });
const answers = async (address: string): Promise<boolean> =>
  (await topology.client.run('ping', '-n', '-c', '1', '-W', '1', address)).code === 0;

describe('the boot file of the guard', () => {
  test('closes a policed interface when nft loads the file, and leaves the node reachable', async () => {
    guardOf(false).make();
    execFileSync('nft', ['flush', 'ruleset']);
    expect(await answers(ADDRESSES.server)).toBe(true);
    execFileSync('nft', ['-f', path]);
    expect(await answers(ADDRESSES.server)).toBe(false);
    expect(guardDropped().packets).toBe(1n);
    expect(await answers(ADDRESSES.nodeLan)).toBe(true);
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  test('is written again by a node that finds its guard in place, and only if the content differs', () => {
    guardOf(false).make();
    const text = readFileSync(path, 'utf8');
    const { ino } = statSync(path);
    guardOf(false).make();
    expect(statSync(path).ino).toBe(ino);
    writeFileSync(path, 'older');
    guardOf(false).make();
    expect(readFileSync(path, 'utf8')).toBe(text);
  });

  test('is empty with policy.fallback allow and after a detach', () => {
    guardOf(false).make();
    guardOf(true).make();
    expect(readFileSync(path, 'utf8')).toBe('');
    guardOf(false).make();
    expect(readFileSync(path, 'utf8')).not.toBe('');
    expect(emptyBootFile(path)).toBe(true);
    expect(readFileSync(path, 'utf8')).toBe('');
    expect(emptyBootFile(join(folder, 'absent'))).toBe(false);
  });

  test('causes a warning if the node cannot write the file', () => {
    const guard = new Guard({
      interfaces: ['lan*'],
      markMask: 0x00f0_0000,
      reversePath: 'strict',
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

  test('is reported unless it is enabled and loads the file of the data folder', () => {
    expect(unitWarnings('/var/lib/weir/guard.nft', folder)).toEqual([warning('weir-guard.service is not enabled')]);
    mkdirSync(join(folder, 'sysinit.target.wants'));
    writeFileSync(join(folder, 'sysinit.target.wants', 'weir-guard.service'), unit());
    expect(unitWarnings('/var/lib/weir/guard.nft', folder)).toEqual([]);
    const other = '/srv/weir/guard.nft';
    expect(unitWarnings(other, folder)).toEqual([warning(`weir-guard.service does not load ${other}`)]);
    mkdirSync(join(folder, 'weir-guard.service.d'));
    const added = `[Service]\nExecStart=\nExecStart=/usr/sbin/nft -f ${other}\n`;
    writeFileSync(join(folder, 'weir-guard.service.d', 'override.conf'), added);
    expect(unitWarnings(other, folder)).toEqual([]);
  });
});
