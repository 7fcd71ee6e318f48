import { release } from 'node:os';
import { expect } from 'vitest';
import { tcxPrograms } from '#dataplane/attach/attach-program.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { DIRECTIONS } from '#dataplane/loader/direction.js';
import { enterNamespace } from './namespace.js';

const [major = 0, minor = 0] = release().split('.').map(Number);

/** TCX exists since Linux 6.6. On earlier kernels, the datapath attaches its BPF programs by clsact. */
export const HAS_TCX = major > 6 || (major === 6 && minor >= 6);

/** Since Linux 6.11, an interface without a queue counts each packet that it cannot send as dropped. */
export const COUNTS_UNSENT = major > 6 || (major === 6 && minor >= 11);

/**
 * Waits until no interface of a network namespace has a BPF program on a TCX hook. The kernel detaches a link
 * some time after its last pin was removed, and until then the program classifies packets.
 */
export async function hooksGone(namespace: string): Promise<void> {
  const leave = enterNamespace(namespace);
  const programs = () =>
    listInterfaces().flatMap(({ ifindex }) => DIRECTIONS.flatMap((direction) => tcxPrograms(ifindex, direction)));
  try {
    await expect.poll(programs, { interval: 5 }).toEqual([]);
  } finally {
    leave();
  }
}
