import { setTimeout } from 'node:timers/promises';
import { Descriptors } from '#libc/descriptors.js';
import { RouteNotifications } from './route-notifications.js';

const LOOK_MS = 100;
const IN_USE_MS = 1_000;

/**
 * Reports changes of links and addresses in the network namespace of the calling thread. Call `begin`
 * before an attempt to bind, because changes before `begin` are not reported. Node's event loop cannot watch
 * a netlink socket, so `next` reads the notifications every 100 ms.
 */
export class AddressChanges {
  #notifications: RouteNotifications | null = null;

  /** Starts to collect changes, and drops the changes that this object collected before. */
  begin(): void {
    this.end();
    this.#notifications = new RouteNotifications(new Descriptors(), 'addresses');
  }

  /**
   * Resolves when a link or address has changed since `begin`, or when `signal` is aborted. The abort also
   * stops the collection of changes.
   */
  next(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const stop = (): void => {
        clearInterval(timer);
        signal.removeEventListener('abort', abort);
        resolve();
      };
      const abort = (): void => {
        this.end();
        stop();
      };
      const timer = setInterval(() => {
        if (this.#notifications?.drain() === true) stop();
      }, LOOK_MS);
      if (signal.aborted) abort();
      else signal.addEventListener('abort', abort);
    });
  }

  end(): void {
    this.#notifications?.close();
    this.#notifications = null;
  }
}

/**
 * Calls `listen` until it succeeds or `signal` aborts. While it fails with EADDRNOTAVAIL, repeats the call
 * after each address change, and while it fails with EADDRINUSE, after each second. Throws any other error of
 * `listen`. Calls `onWait` with the first of several equal failures.
 */
export async function listenOnceThere(
  listen: () => Promise<unknown>,
  onWait: (failure: NodeJS.ErrnoException) => void,
  signal: AbortSignal,
): Promise<void> {
  const changes = new AddressChanges();
  let told: string | undefined;
  try {
    while (!signal.aborted) {
      changes.begin();
      try {
        await listen();
        return;
      } catch (failure) {
        if (!isAboutAddress(failure)) throw failure;
        if (failure.code !== told) onWait(failure);
        told = failure.code;
      }
      if (told === 'EADDRINUSE') await setTimeout(IN_USE_MS, undefined, { signal }).catch(() => {});
      else await changes.next(signal);
    }
  } finally {
    changes.end();
  }
}

function isAboutAddress(failure: unknown): failure is NodeJS.ErrnoException {
  if (!(failure instanceof Error) || !('code' in failure)) return false;
  return failure.code === 'EADDRNOTAVAIL' || failure.code === 'EADDRINUSE';
}
