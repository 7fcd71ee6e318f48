import { setTimeout } from 'node:timers/promises';

/** Waits so long, or until the signal aborts. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, { signal }).catch(() => {});
}
