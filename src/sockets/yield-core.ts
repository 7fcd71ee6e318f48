import { libc } from './libc.js';

/** Lets another thread have this core first that waits for it; returns at once where none does. */
export function yieldCore(): void {
  libc.sched_yield();
}
