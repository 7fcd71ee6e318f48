import { EtcdError } from './etcd-error.js';
import type { EtcdServer } from './etcd-server.js';

/**
 * The time in milliseconds for which a connection to a member is tried before the next member is tried as
 * well.
 */
const NEXT_AFTER_MS = 250;
/** The maximum time in milliseconds to wait for the reason why a member cannot be reached. */
const FAULT_MS = 100;

/**
 * The members of etcd, and the member that this client uses. The client uses a member until a request or the
 * heartbeat of a watch shows a fault of this member.
 */
export class EtcdServers {
  readonly #members: readonly EtcdServer[];
  /** The time of the last fault of each member. */
  readonly #faults = new Map<EtcdServer, number>();
  readonly #leftListeners = new Set<(member: EtcdServer) => void>();
  #current: EtcdServer | null = null;
  #isClosed = false;

  constructor(members: readonly EtcdServer[]) {
    this.#members = members;
  }

  get current(): string | null {
    return this.#current?.endpoint ?? null;
  }

  /**
   * Returns the member that the client uses, with a connection. If there is no connection, tries the members
   * one after the other, beginning with the member whose last fault is longest ago. Throws `unavailable` at
   * the deadline.
   */
  async connected(deadline: number): Promise<EtcdServer> {
    if (this.#isClosed) throw new EtcdError('closed', 'the etcd client is closed');
    const current = this.#current;
    if (current !== null) {
      try {
        await current.connected(Math.min(deadline, Date.now() + NEXT_AFTER_MS));
        return current;
      } catch {
        this.leave(current);
      }
    }
    for (;;) {
      for (const member of this.#inOrder()) {
        if (this.#isClosed) throw new EtcdError('closed', 'the etcd client is closed');
        const left = deadline - Date.now();
        if (left <= 0) throw await this.#unavailable();
        try {
          await member.connected(Date.now() + Math.min(left, NEXT_AFTER_MS));
          this.#current ??= member;
          return this.#current;
        } catch {
          // Try the next member. This member continues to connect.
        }
      }
    }
  }

  /**
   * Returns the next member after a late member, with a connection, for one request. Does not change the
   * member that the client uses. Throws `unavailable` at the deadline.
   */
  async after(late: EtcdServer, deadline: number): Promise<EtcdServer> {
    const index = this.#members.indexOf(late);
    for (const member of [...this.#members.slice(index + 1), ...this.#members.slice(0, index)]) {
      if (this.#isClosed) break;
      try {
        await member.connected(Math.min(deadline, Date.now() + NEXT_AFTER_MS));
        return member;
      } catch {
        // Try the next member. This member continues to connect.
      }
    }
    return this.connected(deadline);
  }

  /** Stops the use of a member: its pending requests fail, and the next request goes to another member. */
  leave(member: EtcdServer): void {
    this.#faults.set(member, performance.now());
    if (this.#current !== member) return;
    this.#current = null;
    member.abandon();
    for (const listener of this.#leftListeners) listener(member);
  }

  /**
   * Calls the listener when the client stops the use of a member. Returns a function that removes the
   * listener.
   */
  onLeave(listener: (member: EtcdServer) => void): () => void {
    this.#leftListeners.add(listener);
    return () => void this.#leftListeners.delete(listener);
  }

  close(): void {
    this.#isClosed = true;
    for (const member of this.#members) member.close();
  }

  async #unavailable(): Promise<EtcdError> {
    const faults = await Promise.all(this.#members.map((member) => member.fault(Date.now() + FAULT_MS)));
    return new EtcdError('unavailable', `no member of etcd can be reached: ${faults.join('; ')}`);
  }

  #inOrder(): readonly EtcdServer[] {
    return this.#members.toSorted((a, b) => (this.#faults.get(a) ?? 0) - (this.#faults.get(b) ?? 0));
  }
}
