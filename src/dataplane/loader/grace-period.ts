import { check, membarrier } from '#libc/libc.js';

const MEMBARRIER_CMD_GLOBAL = 1;

/** An RCU grace period: on return every packet that began before has been judged. */
export function awaitGracePeriod(): void {
  check('membarrier', membarrier(MEMBARRIER_CMD_GLOBAL));
}
