import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { closeFd, linkInfo, openPinned, programInfo } from '#dataplane/loader/bpf-fd.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { check } from '#libc/libc.js';

const SWITCH = '/proc/sys/kernel/bpf_stats_enabled';

/** The number of runs of a BPF program, and the total time of these runs in nanoseconds. */
export type Runs = { readonly count: number; readonly ns: number };

/** Calls `act` while the kernel measures the run time of every BPF program. */
export async function withProgramTimes<T>(act: () => Promise<T>): Promise<T> {
  const before = readFileSync(SWITCH, 'utf8');
  writeFileSync(SWITCH, '1');
  try {
    return await act();
  } finally {
    writeFileSync(SWITCH, before);
  }
}

export function runsOf(programFd: number): Runs {
  return runsIn(readFileSync(`/proc/self/fdinfo/${programFd}`, 'utf8'));
}

function linkedPrograms(pinPath: string): Set<number> {
  const ids = new Set<number>();
  for (const folder of readdirSync(pinPath).filter((name) => name.startsWith('links-'))) {
    for (const name of readdirSync(join(pinPath, folder))) {
      const fd = openPinned(join(pinPath, folder, name));
      ids.add(linkInfo(fd).programId);
      closeFd(fd);
    }
  }
  return ids;
}

/**
 * Returns a file descriptor of the BPF program that classifies incoming packets. The caller must close the
 * descriptor.
 */
export function openIngress(pinPath: string): number {
  const id = [...linkedPrograms(pinPath)].find((program) => programInfo(program)?.name === 'weir_ingress');
  if (id === undefined) throw new Error(`no pinned BPF link under ${pinPath} has the program weir_ingress`);
  return check(`open program ${id}`, libbpf().bpf_prog_get_fd_by_id(id));
}

/**
 * Returns the number and total time of the runs of all BPF programs whose links are pinned under `pinPath`.
 * This process must have loaded the programs, because the function reads `/proc/self/fdinfo`.
 */
export function runsOfPinned(pinPath: string): Runs {
  const ids = linkedPrograms(pinPath);
  const total = { count: 0, ns: 0 };
  for (const text of fdInfos('self')) {
    if (!ids.delete(field(text, 'prog_id'))) continue;
    const { count, ns } = runsIn(text);
    total.count += count;
    total.ns += ns;
  }
  if (ids.size > 0) throw new Error(`no descriptor of this process refers to the BPF programs ${[...ids].join(', ')}`);
  return total;
}

/** Returns the bytes of kernel memory of all maps for which a process has a descriptor. */
export function mapBytes(process: number | 'self'): number {
  const maps = new Map<number, number>();
  for (const text of fdInfos(process)) {
    const id = field(text, 'map_id');
    if (!Number.isNaN(id)) maps.set(id, field(text, 'memlock'));
  }
  return [...maps.values()].reduce((sum, bytes) => sum + bytes, 0);
}

function fdInfos(process: number | 'self'): string[] {
  const folder = `/proc/${process}/fdinfo`;
  return readdirSync(folder).flatMap((name) => {
    try {
      return [readFileSync(join(folder, name), 'utf8')];
    } catch {
      return []; // The descriptor was closed after readdirSync, for example that of the folder itself.
    }
  });
}

function runsIn(fdInfo: string): Runs {
  return { count: field(fdInfo, 'run_cnt'), ns: field(fdInfo, 'run_time_ns') };
}

function field(fdInfo: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s*(\\d+)$`, 'm').exec(fdInfo)?.[1] ?? Number.NaN);
}
