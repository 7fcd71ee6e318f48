import { readdir, readFile, readlink } from 'node:fs/promises';
import { arch, cpus, freemem, loadavg, machine, platform, release, totalmem, uptime, version } from 'node:os';
import { getHeapStatistics } from 'node:v8';

const text = (path: string): Promise<string | null> => readFile(path, 'utf8').catch(() => null);
const TICKS_PER_SECOND = 100;

export async function system(): Promise<Readonly<Record<string, unknown>>> {
  return {
    kernel: { release: release(), version: version(), machine: machine(), platform: platform(), arch: arch() },
    proc_version: (await text('/proc/version'))?.trim() ?? null,
    os_release: await text('/etc/os-release'),
    cpus: cpus().map(({ model }) => model),
    memory: { total_bytes: totalmem(), free_bytes: freemem() },
    load: loadavg(),
    uptime_seconds: uptime(),
  };
}

/** Returns the resources that this process and its threads use. */
export async function ownProcess(): Promise<Readonly<Record<string, unknown>>> {
  return {
    pid: process.pid,
    uptime_seconds: process.uptime(),
    versions: process.versions,
    memory: process.memoryUsage(),
    heap: getHeapStatistics(),
    usage: process.resourceUsage(),
    status: await text('/proc/self/status'),
    limits: await text('/proc/self/limits'),
    threads: await threads(),
    descriptors: await descriptors(),
  };
}

type Thread = {
  readonly id: number;
  readonly name: string;
  readonly state: string;
  readonly user_seconds: number;
  readonly system_seconds: number;
};

async function threads(): Promise<Thread[]> {
  const ids = await readdir('/proc/self/task');
  const stats = await Promise.all(ids.map((id) => text(`/proc/self/task/${id}/stat`)));
  return stats.flatMap((stat, at) => {
    // In `/proc/<pid>/stat` the thread name is between parentheses, and the name may itself contain a
    // parenthesis.
    const end = stat?.lastIndexOf(')') ?? -1;
    if (stat === null || end < 0) return [];
    const fields = stat.slice(end + 2).split(' ');
    return {
      id: Number(ids[at]),
      name: stat.slice(stat.indexOf('(') + 1, end),
      state: fields[0] ?? '',
      user_seconds: Number(fields[11]) / TICKS_PER_SECOND,
      system_seconds: Number(fields[12]) / TICKS_PER_SECOND,
    };
  });
}

/**
 * Returns how many file descriptors of this process are open, by the kind of their target, such as `file` or
 * `socket`.
 */
async function descriptors(): Promise<Readonly<Record<string, number>>> {
  const open = await readdir('/proc/self/fd');
  const counts: Record<string, number> = { all: open.length };
  for (const fd of open) {
    const target = await readlink(`/proc/self/fd/${fd}`).catch(() => null);
    if (target === null) continue;
    const kind = target.startsWith('/') ? 'file' : target.replace(/:?\[?\d+\]?$/, '');
    counts[kind] = (counts[kind] ?? 0) + 1;
  }
  return counts;
}
