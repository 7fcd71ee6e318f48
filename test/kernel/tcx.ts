import { release } from 'node:os';

const [major = 0, minor = 0] = release().split('.').map(Number);

/** TCX came with Linux 6.6; before, programs are attached by clsact. */
export const HAS_TCX = major > 6 || (major === 6 && minor >= 6);

/** Linux 6.11 and later count packets without a queue as dropped by the interface. */
export const COUNTS_UNSENT = major > 6 || (major === 6 && minor >= 11);
