import { readFileSync, statSync } from 'node:fs';
import { type Process, processOf } from '#libc/proc/proc-sockets.js';

/**
 * Returns the process that holds a `flock` lock on the file at `path`; undefined if no process holds a lock,
 * or `/proc/locks` does not show the process.
 */
export function lockHolder(path: string): Process | undefined {
  const { dev, ino } = statSync(path);
  const major = (dev >> 8) & 0xfff;
  const minor = (dev & 0xff) | ((dev >> 12) & 0xf_ff00);
  const hex = (number: number): string => number.toString(16).padStart(2, '0');
  const file = `${hex(major)}:${hex(minor)}:${ino}`;
  for (const line of readFileSync('/proc/locks', 'utf8').split('\n')) {
    const [, kind, , , pid = '', locked] = line.trim().split(/\s+/);
    if (kind === 'FLOCK' && locked === file && Number(pid) > 0) {
      return processOf(Number(pid));
    }
  }
  return undefined;
}
