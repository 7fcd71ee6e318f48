import { release } from 'node:os';

const [major = 0, minor = 0] = release().split('.').map(Number);

/** TCX exists since Linux 6.6. On earlier kernels, the datapath attaches its BPF programs by clsact. */
export const HAS_TCX = major > 6 || (major === 6 && minor >= 6);

/** Since Linux 6.11, an interface without a queue counts each packet that it cannot send as dropped. */
export const COUNTS_UNSENT = major > 6 || (major === 6 && minor >= 11);
