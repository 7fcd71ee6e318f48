import { readFileSync } from 'node:fs';

/** Returns the resident memory (`VmRSS`) of a process with all its threads, in MiB. */
export function residentMiB(pid: number): number {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
}
