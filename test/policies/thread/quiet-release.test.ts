import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { QuietRelease } from '#policies/thread/quiet-release.js';

let released: number;
let quiet: QuietRelease;
beforeEach(() => {
  vi.useFakeTimers();
  released = 0;
  quiet = new QuietRelease(() => released++, 500);
});
afterEach(() => vi.useRealTimers());

test('the policy thread releases memory once, 500 ms after a large task', () => {
  quiet.taskEnded({ isLarge: true });
  vi.advanceTimersByTime(499);
  expect(released).toBe(0);
  vi.advanceTimersByTime(10_000);
  expect(released).toBe(1);
});

test('the policy thread does not release memory after small tasks', () => {
  quiet.taskEnded({ isLarge: false });
  vi.advanceTimersByTime(10_000);
  expect(released).toBe(0);
});

test('a small task delays the release of memory after a large task', () => {
  quiet.taskEnded({ isLarge: true });
  vi.advanceTimersByTime(400);
  quiet.taskEnded({ isLarge: false });
  vi.advanceTimersByTime(499);
  expect(released).toBe(0);
  vi.advanceTimersByTime(1);
  expect(released).toBe(1);
});
