import { check, membarrier } from '#libc/libc.js';

const MEMBARRIER_CMD_GLOBAL = 1;

/**
 * Blocks the thread for one RCU grace period. When the call returns, all packets whose processing began
 * before the call are done.
 */
export function awaitGracePeriod(): void {
  check('membarrier', membarrier(MEMBARRIER_CMD_GLOBAL));
}
