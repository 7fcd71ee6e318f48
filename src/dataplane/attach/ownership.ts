import { closeSync, fstatSync, openSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { Descriptors } from '#libc/descriptors.js';
import { libc } from '#libc/libc.js';
import { isInUnit, type Process, processOf } from '#libc/proc/proc-sockets.js';
import { NamespaceLock, namespaceLockHolder } from './namespace-lock.js';

const LOCK_EXCLUSIVE = 2;
const LOCK_NONBLOCKING = 4;
/** The systemd unit of a node (`deploy/systemd/`). */
const UNIT = 'weir.service';
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
 * Two locks: one of the network namespace, and a `flock` lock on the pin folder. With them, no other Weir
 * process polices the namespace or uses the pin path. The kernel releases the locks when the process ends.
 */
export class Ownership {
  readonly #namespace: NamespaceLock;
  #fd: number | undefined;

  /**
   * Registers the descriptor of the namespace lock in `descriptors`, because Node does not close it when the
   * thread ends.
   */
  constructor(
    readonly pinPath: string,
    descriptors = new Descriptors(),
  ) {
    this.#namespace = new NamespaceLock(descriptors);
  }

  /**
   * Locks the network namespace, calls `prepare`, which must create the pin folder, and locks the pin folder.
   * Throws `OtherProcess` if another process has one of the locks. If the pin folder is a new folder since
   * the last call, locks the new folder.
   */
  acquire(prepare: () => void): void {
    const isNew = !this.#namespace.isHeld;
    try {
      if (!this.#namespace.acquire()) throw otherProcess(namespaceLockHolder(), 'polices this network namespace');
      prepare();
      this.#lockPins();
    } catch (error) {
      if (isNew) this.release();
      throw error;
    }
  }

  release(): void {
    this.#namespace.release();
    this.#closePins();
  }

  #lockPins(): void {
    const { pinPath } = this;
    if (this.#fd !== undefined && isSame(this.#fd, pinPath)) return;
    this.#closePins();
    this.#fd = openSync(pinPath, 'r');
    if (libc.flock(this.#fd, LOCK_EXCLUSIVE | LOCK_NONBLOCKING) === 0) return;
    this.#closePins();
    throw otherProcess(lockHolder(pinPath), `uses the pins in ${pinPath}`);
  }

  #closePins(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }
}

function otherProcess(holder: Process | undefined, does: string): OtherProcess {
  const [process, how] =
    holder === undefined
      ? ['another process', '']
      : [`process ${holder.pid} (${holder.command})`, ` (${commandToStop(holder)})`];
  return new OtherProcess(`${process} ${does}: stop that process first${how}`);
}

/** A `kill` is not enough for a process of this systemd unit: systemd starts the process again. */
function commandToStop({ pid }: Process): string {
  return isInUnit(pid, UNIT) ? `systemctl stop ${UNIT}` : `kill ${pid}`;
}

function isSame(fd: number, path: string): boolean {
  const [held, there] = [fstatSync(fd), statSync(path)];
  return held.dev === there.dev && held.ino === there.ino;
}

/**
 * Returns the process that holds a `flock` lock on the file at `path`; undefined if no process holds a lock,
 * or `/proc/locks` does not show the process.
 */
export function lockHolder(path: string): Process | undefined {
  const { dev, ino } = statSync(path);
  const major = (dev >> 8) & 0xfff;
  const minor = (dev & 0xff) | ((dev >> 12) & 0xf_ff00);
  const hex = (number: number): string => number.toString(16).padStart(2, '0');
  const file = `${hex(major)}:${hex(minor)}:${ino}`;
  for (const line of readFileSync('/proc/locks', 'utf8').split('\n')) {
    const [, kind, , , pid = '', locked] = line.trim().split(/\s+/);
    if (kind === 'FLOCK' && locked === file && Number(pid) > 0) {
      return processOf(Number(pid));
    }
  }
  return undefined;
}
