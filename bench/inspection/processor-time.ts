import { readdirSync, readFileSync } from 'node:fs';

const CLOCK_TICKS = 100;

/** Returns the sum of user and kernel CPU time of the processes, in microseconds. */
export function processorTimeUs(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + timeOf(`/proc/${pid}/stat`), 0);
}

/**
 * Returns the user and kernel CPU time of each thread of a process, in microseconds. The keys are thread ids.
 */
export function threadTimesUs(pid: number): ReadonlyMap<string, number> {
  return new Map(readdirSync(`/proc/${pid}/task`).map((id) => [id, timeOf(`/proc/${pid}/task/${id}/stat`)]));
}

function timeOf(file: string): number {
  const fields = readFileSync(file, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return ((Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS) * 1e6;
}
