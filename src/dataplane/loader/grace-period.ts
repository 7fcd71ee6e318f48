import { check, membarrier, membarrierBeside } from '#libc/libc.js';
import { guardedUntilDone } from '#libc/termination-guard.js';

const MEMBARRIER_CMD_GLOBAL = 1;

/**
 * Blocks the calling thread for one RCU grace period. When the function returns, all BPF programs that were
 * running at the time of the call have finished.
 */
export function awaitGracePeriod(): void {
  check('membarrier', membarrier(MEMBARRIER_CMD_GLOBAL));
}

/** Like `awaitGracePeriod`, but waits in the thread pool for asynchronous calls, which takes 10 to 30 ms. */
export async function awaitGracePeriodBeside(): Promise<void> {
  check('membarrier', await guardedUntilDone(() => membarrierBeside(MEMBARRIER_CMD_GLOBAL)));
}
