import { Descriptors } from './descriptors.js';
import { RouteNotifications } from './route-news.js';

const LOOK_MS = 100;

/**
 * Changes of links and IPv4 addresses in the network namespace of the calling thread. Call `begin` before an
 * attempt to bind, so that no change between the attempt and `next` is missed. Node's event loop cannot watch
 * a netlink socket, so notifications are read every 100 ms.
 */
export class AddressChanges {
  #notifications: RouteNotifications | null = null;

  /** Starts to collect changes, and drops earlier ones. */
  begin(): void {
    this.end();
    this.#notifications = new RouteNotifications(new Descriptors(), 'addresses');
  }

  /** Resolves after a change since `begin`, or after an abort of `signal`, which also ends the collection. */
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
 * Calls `listen`, and again after each address change, as long as it fails with EADDRNOTAVAIL. `onAbsent` is
 * called after the first such failure.
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
