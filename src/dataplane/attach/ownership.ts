import { closeSync, fstatSync, openSync, readlinkSync, statSync } from 'node:fs';
import { libc } from '#libc/libc.js';
import { lockHolder } from './lock-holder.js';

const LOCK_EXCLUSIVE = 2;
const LOCK_NONBLOCKING = 4;
const NETWORK_NAMESPACE = '/proc/thread-self/ns/net';

/** Thrown if another process holds the lock of this network namespace or of the pin path. */
class OtherProcess extends Error {
  override readonly name = 'OtherProcess';
  readonly code = 'other_process';
}

/** Thrown if BPF pins or BPF programs belong to another network namespace or to another Weir node. */
export class OwnedElsewhere extends Error {
  override readonly name = 'OwnedElsewhere';
  readonly code = 'owned_elsewhere';
}

/**
 * Returns the inode number of this thread's network namespace; the number stays the same as long as the
 * namespace exists.
 */
export function networkNamespace(): string {
  return /\d+/.exec(readlinkSync(NETWORK_NAMESPACE))?.[0] ?? '';
}

/**
 * Two `flock` locks, on the file of the network namespace and on the pin folder. With them, no other Weir
 * process polices the namespace or uses the pin path. The kernel releases the locks when the process ends.
 */
export class Ownership {
  readonly #fds = new Map<string, number>();

  constructor(readonly pinPath: string) {}

  /**
   * Locks the network namespace, calls `prepare`, which must create the pin folder, and locks the pin folder.
   * Throws `OtherProcess` if another process has one of the locks. If the pin folder is a new folder since
   * the last call, locks the new folder.
   */
  take(prepare: () => void): void {
    const isNew = this.#fds.size === 0;
    try {
      this.#lock(NETWORK_NAMESPACE, 'polices this network namespace');
      prepare();
      this.#lock(this.pinPath, `uses the pins in ${this.pinPath}`);
    } catch (error) {
      if (isNew) this.release();
      throw error;
    }
  }

  release(): void {
    for (const fd of this.#fds.values()) closeSync(fd);
    this.#fds.clear();
  }

  #lock(path: string, does: string): void {
    const held = this.#fds.get(path);
    if (held !== undefined) {
      if (isSame(held, path)) return;
      closeSync(held);
      this.#fds.delete(path);
    }
    const fd = openSync(path, 'r');
    this.#fds.set(path, fd);
    if (libc.flock(fd, LOCK_EXCLUSIVE | LOCK_NONBLOCKING) === 0) return;
    closeSync(fd);
    this.#fds.delete(path);
    const holder = lockHolder(path);
    const [who, how] =
      holder === undefined
        ? ['another process', '']
        : [`process ${holder.pid} (${holder.command})`, ` (kill ${holder.pid})`];
    throw new OtherProcess(`${who} ${does}: stop that process first${how}`);
  }
}

function isSame(fd: number, path: string): boolean {
  const [held, there] = [fstatSync(fd), statSync(path)];
  return held.dev === there.dev && held.ino === there.ino;
}
