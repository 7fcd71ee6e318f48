import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { lstat, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Three network namespaces on this machine, connected by veth pairs. The namespace `node` forwards packets
 * between the other two.
 *
 *     client 10.77.1.2 ── lan0 10.77.1.1 [node] 10.77.2.1 wan0 ── 10.77.2.2 server
 */
export type Topology = {
  readonly client: NamespaceCommands;
  readonly node: NamespaceCommands;
  readonly server: NamespaceCommands;
  readonly pinPath: string;
  /** Kills the processes that `start` created, and removes the namespaces and the pinned BPF objects. */
  remove(): Promise<void>;
};

type Outcome = { readonly code: number | null; readonly stdout: string; readonly stderr: string };

export type NamespaceCommands = {
  readonly name: string;
  run(command: string, ...args: string[]): Promise<Outcome>;
  /** Runs a command like `run`, but throws if the command fails. Returns its standard output. */
  must(command: string, ...args: string[]): Promise<string>;
  /**
   * Starts a process. `descriptors` become the descriptors of the process from 3 on. The other end of a pipe
   * is in `stdio` of the child.
   */
  start(
    command: string,
    args: readonly string[],
    env?: NodeJS.ProcessEnv,
    descriptors?: readonly (number | 'pipe')[],
  ): ChildProcess;
};

/** A network namespace, which exists until `remove` is called. */
export type Namespace = NamespaceCommands & {
  /** Kills the processes that `start` created, and removes the namespace. */
  remove(): Promise<void>;
};

export const ADDRESSES = {
  client: '10.77.1.2',
  /** A second address of the client, in another /24 network on the same link. */
  clientOther: '10.77.3.2',
  nodeLan: '10.77.1.1',
  nodeWan: '10.77.2.1',
  server: '10.77.2.2',
} as const;

const PREFIX = 'weir-';

function run(command: string, args: readonly string[], input?: string): Promise<Outcome> {
  return new Promise((resolve) => {
    const child = execFile(command, [...args], { maxBuffer: 64 << 20 }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : null;
      resolve({ code, stdout, stderr: error !== null && stderr === '' ? error.message : stderr });
    });
    if (input !== undefined) child.stdin?.end(input);
  });
}

async function must(command: string, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await run(command, args);
  if (code !== 0) throw new Error(`${command} ${args.join(' ')}: ${stderr.trim() || `exit ${code}`}`);
  return stdout;
}

/** Runs several `ip` commands in a network namespace. */
async function batch(namespace: string, commands: readonly string[]): Promise<void> {
  const { code, stderr } = await run('ip', ['-n', namespace, '-batch', '-'], `${commands.join('\n')}\n`);
  if (code !== 0) throw new Error(`ip -batch in the network namespace ${namespace}: ${stderr.trim()}`);
}

/**
 * Creates the network namespaces. Their names contain the process id and `tag`, so several topologies can
 * exist at the same time.
 */
export async function createTopology(tag: string): Promise<Topology> {
  await removeStale();
  const base = `${PREFIX}${process.pid}-${tag}`;
  const pinPath = `/sys/fs/bpf/${base}`;
  const children = new Set<ChildProcess>();
  const names = { client: `${base}-client`, node: `${base}-node`, server: `${base}-server` };

  const topology: Topology = {
    client: commandsIn(names.client, children),
    node: commandsIn(names.node, children),
    server: commandsIn(names.server, children),
    pinPath,
    remove: async () => {
      await Promise.all([...children].map(end));
      await Promise.all(Object.values(names).map((name) => run('ip', ['netns', 'del', name])));
      await rm(pinPath, { recursive: true, force: true });
    },
  };

  try {
    for (const name of Object.values(names)) await must('ip', 'netns', 'add', name);
    await batch(names.node, [
      `link add lan0 type veth peer name eth0 netns ${names.client}`,
      `link add wan0 type veth peer name eth0 netns ${names.server}`,
      `addr add ${ADDRESSES.nodeLan}/24 dev lan0`,
      'addr add 10.77.3.1/24 dev lan0',
      `addr add ${ADDRESSES.nodeWan}/24 dev wan0`,
      ...['lo', 'lan0', 'wan0'].map((device) => `link set ${device} up`),
    ]);
    await batch(names.client, [
      ...[ADDRESSES.client, ADDRESSES.clientOther].map((address) => `addr add ${address}/24 dev eth0`),
      ...['lo', 'eth0'].map((device) => `link set ${device} up`),
      `route add default via ${ADDRESSES.nodeLan}`,
    ]);
    await batch(names.server, [
      `addr add ${ADDRESSES.server}/24 dev eth0`,
      ...['lo', 'eth0'].map((device) => `link set ${device} up`),
      `route add default via ${ADDRESSES.nodeWan}`,
    ]);
    await topology.node.must('sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward');
    return topology;
  } catch (failure) {
    await topology.remove();
    throw failure;
  }
}

/** Returns functions that run commands in a network namespace. `children` gets the processes of `start`. */
function commandsIn(name: string, children: Set<ChildProcess>): NamespaceCommands {
  // Enter only the network namespace. `ip netns exec` would also mount another /sys, which hides the pinned
  // BPF objects.
  const enter = [`--net=/run/netns/${name}`];
  return {
    name,
    run: (command, ...args) => run('nsenter', [...enter, command, ...args]),
    must: (command, ...args) => must('nsenter', ...enter, command, ...args),
    start: (command, args, env, descriptors = []) => {
      // `--pdeathsig` ends the child process with this process, even if this process is killed.
      const child = spawn('nsenter', [...enter, 'setpriv', '--pdeathsig', 'KILL', command, ...args], {
        stdio: ['pipe', 'pipe', 'pipe', ...descriptors],
        env: env ?? process.env,
      });
      children.add(child);
      child.once('exit', () => children.delete(child));
      return child;
    },
  };
}

/** Creates one network namespace. Its name contains the process id and `tag`. */
export async function namespaceOf(tag: string): Promise<Namespace> {
  await removeStale();
  const name = `${PREFIX}${process.pid}-${tag}`;
  const children = new Set<ChildProcess>();
  await must('ip', 'netns', 'add', name);
  return {
    ...commandsIn(name, children),
    remove: async () => {
      await Promise.all([...children].map(end));
      await run('ip', ['netns', 'del', name]);
    },
  };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGKILL');
  await exited;
}

/** If this process ends without removing the folder, a later run of `createTopology` removes it. */
export function temporaryFolder(tag: string): Promise<string> {
  return mkdtemp(join(tmpdir(), `${PREFIX}${process.pid}-${tag}-`));
}

/**
 * Removes the namespaces, pinned BPF objects and temporary folders of earlier runs whose processes have
 * ended. The process id is part of each name. Keeps the folders of other users: all users can write to the
 * temporary folder, and could replace a folder by a symbolic link while root removes what is in it.
 */
async function removeStale(): Promise<void> {
  const owners = /^weir-(\d+)-/;
  const dead = async (name: string): Promise<boolean> => {
    const pid = owners.exec(name)?.[1];
    return pid !== undefined && !(await isAlive(Number(pid)));
  };
  const entries = async (folder: string): Promise<string[]> => readdir(folder).catch(() => []);
  for (const name of await entries('/run/netns')) {
    if (await dead(name)) {
      await endAll(name);
      await run('ip', ['netns', 'del', name]);
    }
  }
  for (const folder of ['/sys/fs/bpf', tmpdir()]) {
    for (const name of await entries(folder)) {
      const path = join(folder, name);
      if ((await dead(name)) && (await isOwn(path))) await rm(path, { recursive: true, force: true });
    }
  }
}

async function isOwn(path: string): Promise<boolean> {
  const stats = await lstat(path).catch(() => undefined);
  return stats?.uid === process.getuid?.();
}

async function endAll(namespace: string): Promise<void> {
  const { stdout } = await run('ip', ['netns', 'pids', namespace]);
  for (const pid of stdout.split('\n').filter((line) => line !== '')) {
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // Ignore the failure: the process ended before the signal was sent.
    }
  }
}

async function isAlive(pid: number): Promise<boolean> {
  try {
    const status = await readFile(`/proc/${pid}/status`, 'utf8');
    return !/^State:\s+Z/m.test(status);
  } catch {
    return false;
  }
}
