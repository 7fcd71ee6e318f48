import { check, membarrier } from '#libc/libc.js';

const MEMBARRIER_CMD_GLOBAL = 1;

/** Waits for an RCU grace period: packets that began before the call are done when it returns. */
export function awaitGracePeriod(): void {
  check('membarrier', membarrier(MEMBARRIER_CMD_GLOBAL));
}
