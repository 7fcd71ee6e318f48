import { readFileSync } from 'node:fs';

/** The memory of a process that is in RAM, all its threads included. */
export function residentMiB(pid: number): number {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
}
