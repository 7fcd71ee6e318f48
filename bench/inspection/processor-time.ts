import { readdirSync, readFileSync } from 'node:fs';

const CLOCK_TICKS = 100;

/** The user and kernel time of these processes together, in microseconds. */
export function processorTimeUs(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + timeOf(`/proc/${pid}/stat`), 0);
}

/** The time of each thread of a process, by its id, in microseconds. */
export function threadTimesUs(pid: number): ReadonlyMap<string, number> {
  return new Map(readdirSync(`/proc/${pid}/task`).map((id) => [id, timeOf(`/proc/${pid}/task/${id}/stat`)]));
}

function timeOf(file: string): number {
  const fields = readFileSync(file, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return ((Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS) * 1e6;
}
