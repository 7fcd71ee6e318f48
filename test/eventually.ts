import { vi } from 'vitest';

/** The longest wait for a state, in ms. It only ends a test that hangs, and is no bound of a behaviour. */
export const HANGING_MS = 60_000;

/** Repeats `attempt` until it does not throw, and returns its result. */
export function eventually<T>(attempt: () => T | Promise<T>, options: { readonly interval?: number } = {}): Promise<T> {
  return vi.waitFor(attempt, { ...options, timeout: HANGING_MS });
}
