import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, describe, expect, test } from 'vitest';
import { ProgressClock } from '#test/progress-clock.js';

/** An awk program that uses processor time, prints a line, and waits for a line of input. */
const COMPUTING = 'BEGIN { while (i < 2e6) i++; print i; fflush(); getline }';
const busy: number[] = [];

/** Starts busy processes on the first processor, for 30 s at most. They are no descendants of this one. */
function load(count: number): void {
  const one = 'timeout 30 taskset -c 0 sh -c "while :; do :; done" >/dev/null 2>&1 & echo $!';
  for (let at = 0; at < count; at++)
    busy.push(Number(execFileSync('setsid', ['sh', '-c', one], { encoding: 'utf8' }).trim()));
}

afterEach(() => {
  for (const pid of busy.splice(0)) process.kill(pid);
});

describe('a progress clock', () => {
  test('a progress clock counts the time of a computation, and not the time that the computation waits behind other processes', async () => {
    load(3);
    const from = performance.now();
    const clock = new ProgressClock();
    const computing = spawn('taskset', ['-c', '0', 'awk', COMPUTING]);
    await once(computing.stdout, 'data');
    const [passed, shown] = [performance.now() - from, clock.ms()];
    computing.stdin.end();
    expect(shown).toBeLessThan(passed / 2);
  });

  test('a progress clock shows at least a tenth of the elapsed time while many threads of descendant processes wait for a processor', async () => {
    const waiting = Array.from({ length: 12 }, () => spawn('taskset', ['-c', '0', 'sh', '-c', 'while :; do :; done']));
    for (const { pid = 0 } of waiting) busy.push(pid);
    const [from, clock] = [performance.now(), new ProgressClock()];
    await clock.reaches(50);
    const passed = performance.now() - from;
    expect([passed >= 50, passed < 2_000]).toEqual([true, true]);
  });

  test('a progress clock counts the time of a wait for a timer', async () => {
    const shown = async (): Promise<number> => {
      const clock = new ProgressClock();
      await pause(100);
      return clock.ms();
    };
    await expect.poll(shown).toBeGreaterThan(80);
  });
});
