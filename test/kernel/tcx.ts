import { release } from 'node:os';

const [major = 0, minor = 0] = release().split('.').map(Number);

/** Linux 6.6 brought it; before, programs are attached by clsact. */
export const HAS_TCX = major > 6 || (major === 6 && minor >= 6);

/** Linux 6.11 counts packets that find no queue as dropped by the interface. */
export const COUNTS_UNSENT = major > 6 || (major === 6 && minor >= 11);
