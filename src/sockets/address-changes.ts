import { Descriptors } from '#libc/descriptors.js';
import { RouteNotifications } from './route-notifications.js';

const LOOK_MS = 100;

/**
 * Reports changes of links and IPv4 addresses in the network namespace of the calling thread. Call `begin`
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
        if (this.#notifications?.take() === true) stop();
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
 * Calls `listen`, and repeats the call after each address change while `listen` fails with EADDRNOTAVAIL.
 * Throws any other error of `listen`. Calls `onAbsent` once, after the first EADDRNOTAVAIL.
 */
export async function listenOnceThere(
  listen: () => Promise<unknown>,
  onAbsent: (failure: Error) => void,
  signal: AbortSignal,
): Promise<void> {
  const changes = new AddressChanges();
  try {
    for (let tries = 0; !signal.aborted; tries++) {
      changes.begin();
      try {
        await listen();
        return;
      } catch (failure) {
        if (!(failure instanceof Error) || (failure as NodeJS.ErrnoException).code !== 'EADDRNOTAVAIL') throw failure;
        if (tries === 0) onAbsent(failure);
      }
      await changes.next(signal);
    }
  } finally {
    changes.end();
  }
}
