import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';

const NS_PER_MS = 1e6;
/** The unit of /proc/stat: USER_HZ, which is 100 on Linux. */
const MS_PER_TICK = 10;
/** The stopwatch is at most this many times slower than the clock. */
const LEAST_SHARE = 10;

/**
 * A stopwatch for bounds of tests, which other load on the machine does not lengthen. From the time that
 * passed, it subtracts the time in which threads of this process and of its descendants waited for a
 * processor (`schedstat` in proc_pid(5)), and the time that a hypervisor gave to other machines (`steal` in
 * proc_stat(5)). Waits of parallel threads are added, so the stopwatch can run too slowly on a busy machine,
 * and never too fast. A tenth of the time always counts, so that the stopwatch does not stand still while
 * many threads wait. The waits of a process that has ended do not count.
 */
export class ProgressClock {
  readonly #from = performance.now();
  readonly #waited = waitsOf(descendants(process.pid));
  readonly #stolen = stolenMs();

  /** The time since the start in ms, without the time in which threads waited for a processor. */
  ms(): number {
    const passed = performance.now() - this.#from;
    return Math.max(passed / LEAST_SHARE, passed - this.waitedMs());
  }

  /** The time in ms since the start in which threads waited for a processor or the hypervisor ran others. */
  waitedMs(): number {
    let waited = stolenMs() - this.#stolen;
    for (const [thread, ms] of waitsOf(descendants(process.pid))) waited += ms - (this.#waited.get(thread) ?? 0);
    return waited;
  }

  /** Whether the stopwatch shows more than `ms`. Reads no file before that time of the wall clock. */
  isOver(ms: number): boolean {
    return performance.now() - this.#from > ms && this.ms() > ms;
  }

  /** Waits until the stopwatch shows `ms`. */
  async reaches(ms: number): Promise<void> {
    for (let left = ms - this.ms(); left > 0; left = ms - this.ms()) await pause(Math.max(20, left));
  }
}

/** The ids of a process and of all its descendants. */
function descendants(root: number): ReadonlySet<number> {
  const found = new Set([root]);
  for (const pid of found)
    for (const thread of threadsOf(pid))
      for (const child of textOf(`/proc/${pid}/task/${thread}/children`).split(' ').filter(Boolean))
        found.add(Number(child));
  return found;
}

/** The time in ms that each thread of the processes has waited for a processor, by process and thread. */
function waitsOf(pids: ReadonlySet<number>): ReadonlyMap<string, number> {
  const waits = new Map<string, number>();
  for (const pid of pids)
    for (const thread of threadsOf(pid)) {
      const waitedNs = Number(textOf(`/proc/${pid}/task/${thread}/schedstat`).split(' ')[1]);
      if (!Number.isNaN(waitedNs)) waits.set(`${pid}/${thread}`, waitedNs / NS_PER_MS);
    }
  return waits;
}

function threadsOf(pid: number): readonly string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    return [];
  }
}

/** The text of a file in /proc, or nothing if its process has ended. */
function textOf(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}

/** The time in ms that the hypervisor gave to other machines, as the mean of the processors. */
function stolenMs(): number {
  const lines = textOf('/proc/stat').split('\n');
  const processors = lines.filter((line) => /^cpu\d/.test(line));
  const ticks = Number(lines[0]?.trim().split(/\s+/)[8]);
  return processors.length === 0 || Number.isNaN(ticks) ? 0 : (ticks * MS_PER_TICK) / processors.length;
}
