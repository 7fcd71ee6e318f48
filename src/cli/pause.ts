import { setTimeout } from 'node:timers/promises';

/** Waits for `ms` milliseconds. Returns earlier if the signal aborts. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, { signal }).catch(() => {});
}
