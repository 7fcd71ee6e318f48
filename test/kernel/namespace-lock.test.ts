import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, statSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { hasPacketLog, NamespaceLock, namespaceLockHolder } from '#dataplane/attach/namespace-lock.js';
import { Ownership } from '#dataplane/attach/ownership.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { Descriptors } from '#libc/descriptors.js';
import { datapathOptions } from './datapath-options.js';
import { topologyOfFile } from './topology-of-file.js';

const NOBODY = '65534';
const lockModule = pathToFileURL('dist/src/dataplane/attach/namespace-lock.js').href;
const descriptorsModule = pathToFileURL('dist/src/libc/descriptors.js').href;
const SCRIPT = `
  const { NamespaceLock, namespaceLockHolder } = await import(${JSON.stringify(lockModule)});
  const { Descriptors } = await import(${JSON.stringify(descriptorsModule)});
  globalThis.lock = new NamespaceLock(new Descriptors());
  try {
    console.log(lock.acquire() ? 'taken' : JSON.stringify(namespaceLockHolder() ?? null));
  } catch (failure) {
    console.log(failure.code);
  }
  setInterval(() => {}, 1_000);`;

const topology = topologyOfFile('lock');
let processes: ChildProcess[] = [];
beforeEach(() => {
  processes = [];
});
afterEach(async () => {
  for (const each of processes) await kill(each);
});

async function kill(each: ChildProcess): Promise<void> {
  if (each.exitCode !== null || each.signalCode !== null) return;
  each.kill('SIGKILL');
  await once(each, 'exit');
}

/** Starts a process in the namespace of the node. Returns it with its first line of output. */
async function begin(command: string, ...args: string[]): Promise<[ChildProcess, string]> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  processes.push(child);
  return [child, await firstLine(child)];
}

/** Starts a process of another user that takes the lock of the network namespace. */
const takeAs = (user: string, capabilities: string): Promise<[ChildProcess, string]> => {
  const sets = ['--bounding-set', capabilities, '--inh-caps', capabilities, '--ambient-caps', capabilities];
  const words = [
    '--reuid',
    user,
    '--regid',
    user,
    '--clear-groups',
    ...sets,
    process.execPath,
    '--input-type=module',
    '-e',
    SCRIPT,
  ];
  return begin('setpriv', ...words);
};

test('a process without capabilities that locks the file of the network namespace does not prevent the start of the datapath', async () => {
  const locks = 'exec 9</proc/self/ns/net && flock 9 && echo locked && exec sleep 1000';
  const [, line] = await begin('setpriv', '--reuid', NOBODY, '--regid', NOBODY, '--clear-groups', 'sh', '-c', locks);
  expect(line).toBe('locked');
  const datapath = new LocalDatapath(datapathOptions(topology.pinPath));
  datapath.open();
  datapath.close();
  detach(topology.pinPath);
});

test('the pin folder cannot be opened, and so cannot be locked, by another user', () => {
  mkdirSync(topology.pinPath, { recursive: true, mode: 0o755 });
  detach(topology.pinPath);
  const datapath = new LocalDatapath(datapathOptions(topology.pinPath));
  datapath.open();
  expect(statSync(topology.pinPath).mode & 0o777).toBe(0o700);
  datapath.close();
  detach(topology.pinPath);
});

describe('the lock of the namespace', () => {
  let lock: NamespaceLock;
  beforeEach(() => {
    lock = new NamespaceLock(new Descriptors());
  });
  afterEach(() => lock.release());

  test('the check whether the kernel supports the lock of the network namespace does not take the lock', () => {
    expect(hasPacketLog()).toBe(true);
    expect(lock.acquire()).toBe(true);
    expect(hasPacketLog()).toBe(true);
  });

  test('the lock of the network namespace is free as soon as its holder was killed', async () => {
    const [holder, line] = await takeAs(NOBODY, '-all,+net_admin');
    expect(line).toBe('taken');
    expect(lock.acquire()).toBe(false);
    expect(namespaceLockHolder()).toEqual({ pid: holder.pid, command: expect.any(String) });
    await kill(holder);
    expect(lock.acquire()).toBe(true);
  });

  test('the lock of the network namespace names its holder also to another user, who cannot read the descriptors of root', async () => {
    const [holder, taken] = await begin(process.execPath, '--input-type=module', '-e', SCRIPT);
    expect(taken).toBe('taken');
    const [, line] = await takeAs(NOBODY, '-all,+net_admin');
    expect(JSON.parse(line)).toMatchObject({ pid: holder.pid });
  });

  test('the lock of the network namespace cannot be taken without CAP_NET_ADMIN, also while it is free', async () => {
    const [, free] = await takeAs(NOBODY, '-all');
    expect(free).toBe('EPERM');
    expect(lock.acquire()).toBe(true);
    const [, held] = await takeAs(NOBODY, '-all');
    expect(held).toBe('EPERM');
  });

  test('the lock of the network namespace changes no nftables table, and stays taken after `nft flush ruleset` of another process', async () => {
    expect(lock.acquire()).toBe(true);
    expect(await topology.node.must('nft', 'list', 'ruleset')).toBe('');
    await topology.node.must('nft', 'flush', 'ruleset');
    expect(new NamespaceLock(new Descriptors()).acquire()).toBe(false);
    expect(namespaceLockHolder()).toMatchObject({ pid: process.pid });
  });

  test('the lock of the network namespace is not inherited by the processes that its holder starts', async () => {
    expect(lock.acquire()).toBe(true);
    await begin('sh', '-c', 'echo started; exec sleep 1000');
    lock.release();
    expect(lock.acquire()).toBe(true);
  });

  test('the lock of the network namespace is released if the pin folder cannot be created', () => {
    const ownership = new Ownership(topology.pinPath);
    const failing = (): void => {
      throw new Error('no folder');
    };
    expect(() => ownership.acquire(failing)).toThrow('no folder');
    expect(lock.acquire()).toBe(true);
  });
});
