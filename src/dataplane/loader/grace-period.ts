import { check, membarrier } from '#libc/libc.js';

const MEMBARRIER_CMD_GLOBAL = 1;

/**
 * Blocks the calling thread for one RCU grace period. When the function returns, all BPF programs that were
 * running at the time of the call have finished.
 */
export function awaitGracePeriod(): void {
  check('membarrier', membarrier(MEMBARRIER_CMD_GLOBAL));
}
