import { closeSync, openSync, readlinkSync } from 'node:fs';
import { libc } from '#libc/libc.js';
import { lockHolder } from './lock-holder.js';

const LOCK_EXCLUSIVE = 2;
const LOCK_NONBLOCKING = 4;
const NETWORK_NAMESPACE = '/proc/thread-self/ns/net';

/** Another process has what only one may have, or it belongs to another network namespace. */
export class OwnedElsewhere extends Error {
  override readonly name = 'OwnedElsewhere';
  readonly code = 'owned_elsewhere';
}

/** The inode of the network namespace that this thread is in: what stays the same for as long as it exists. */
export function networkNamespace(): string {
  return /\d+/.exec(readlinkSync(NETWORK_NAMESPACE))?.[0] ?? '';
}

/**
 * One process polices a network namespace, and one a pin path. Both are locks of the kernel on the thing itself, and
 * end with the process.
 */
export class Ownership {
  #fds: number[] = [];

  constructor(readonly pinPath: string) {}

  /** The pin path must exist. */
  take(): void {
    if (this.#fds.length > 0) return;
    try {
      this.#lock(NETWORK_NAMESPACE, 'polices this network namespace');
      this.#lock(this.pinPath, `uses the pins in ${this.pinPath}`);
    } catch (error) {
      this.release();
      throw error;
    }
  }

  release(): void {
    for (const fd of this.#fds) closeSync(fd);
    this.#fds = [];
  }

  #lock(path: string, does: string): void {
    const fd = openSync(path, 'r');
    this.#fds.push(fd);
    if (libc.flock(fd, LOCK_EXCLUSIVE | LOCK_NONBLOCKING) === 0) return;
    const holder = lockHolder(path);
    const [who, how] =
      holder === undefined
        ? ['another process', '']
        : [`process ${holder.pid} (${holder.command})`, ` (kill ${holder.pid})`];
    throw new OwnedElsewhere(`${who} ${does}: end it first${how}`);
  }
}
