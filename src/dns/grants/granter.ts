import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { GrantAnswer, GrantRequest } from '#contracts/datapath/grant-messages.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { nowMs } from '#dns/clock.js';
import { ExpiringMap } from '#dns/expiring-map.js';
import type { Pump, Sender } from '#sockets/udp/pump.js';

/**
 * The default time limit of a grant request in milliseconds (D12). After the limit, the client gets SERVFAIL.
 */
const TIMEOUT_MS = 100;

/**
 * The result of a grant request. `all`: all grants are in force. `some`: the grant table was full, so the
 * datapath refused at least one grant. `none`: the request failed, timed out, or could not be sent.
 */
export type Granted = 'all' | 'some' | 'none';
type Done = (granted: Granted) => void;
type PendingGrant = {
  readonly patterns: readonly string[];
  readonly addresses: readonly Address[];
  readonly expiryNs: number;
  readonly done: Done;
};
type Sent = { readonly id: number; readonly until: number; readonly grants: readonly PendingGrant[] };

/**
 * Requests grants for the addresses of hostnames from the datapath thread. The granter collects requests
 * until the next `flush`, which sends them in one message.
 */
export class Granter implements Sender {
  #port: MessagePort | null = null;
  #lastId = 0;
  #pending: PendingGrant[] = [];
  #isToBeFlushed = false;
  readonly #sent = new ExpiringMap<number, Sent>();

  constructor(
    private readonly pump: Pick<Pump, 'hasToSend'>,
    /** Called with the number of grants that the datapath refused because the grant table was full. */
    private readonly onRefused: (count: number) => void,
    private readonly timeoutMs = TIMEOUT_MS,
  ) {}

  /**
   * Sends requests over this port from now on. Requests that were sent over the previous port and have no
   * answer yet fail.
   */
  use(port: MessagePort | null): void {
    this.#port?.close();
    this.#port = port;
    for (const sent of this.#sent.values()) this.#fail(sent);
    port?.on('message', (answer: GrantAnswer) => {
      if (this.#port === port) this.#handleAnswer(answer);
    });
    port?.on('close', () => {
      if (this.#port === port) this.use(null);
    });
  }

  /**
   * Grants all `addresses` to all hostname `patterns` until `expiryNs`, in nanoseconds of the monotonic
   * clock. Calls `done` when the datapath thread has answered, or with 'none' if no answer arrives within
   * `timeoutMs`. A request with `isAwaited` false is sent with the next awaited request, or at the next
   * `tick`.
   */
  grant(
    patterns: readonly string[],
    addresses: readonly Address[],
    { expiryNs, isAwaited, done }: { readonly expiryNs: number; readonly isAwaited: boolean; readonly done: Done },
  ): void {
    if (this.#port === null) {
      done('none');
      return;
    }
    if (isAwaited) this.flushSoon();
    this.#pending.push({ patterns, addresses, expiryNs, done });
  }

  /**
   * Sends the collected requests at the end of the current iteration of the pump, the loop that receives and
   * sends. Call this method when a client starts to wait for a request that had `isAwaited` false.
   */
  flushSoon(): void {
    if (this.#isToBeFlushed) return;
    this.#isToBeFlushed = true;
    this.pump.hasToSend(this);
  }

  /**
   * Sends collected requests, and fails requests that exceed their time limit. Call this method every few
   * milliseconds.
   */
  tick(): void {
    this.flush();
    const now = nowMs();
    if ((this.#sent.oldest()?.until ?? now + 1) > now) return;
    // This thread may have been busy, so that answers wait unread on the port. Read these answers before a
    // request fails because it has no answer.
    this.#handleUnreadAnswers();
    for (const sent of this.#sent.values()) if (sent.until <= now) this.#fail(sent);
  }

  flush(): number {
    this.#isToBeFlushed = false;
    const grants = this.#pending;
    this.#pending = [];
    if (grants.length === 0) return 0;
    if (this.#port === null) {
      for (const { done } of grants) done('none');
      return 0;
    }
    const sent: Sent = { id: ++this.#lastId, grants, until: nowMs() + this.timeoutMs };
    this.#sent.set(sent.id, sent);
    this.#port.postMessage({ id: sent.id, ...rowsOf(grants) } satisfies GrantRequest);
    return 0;
  }

  #fail({ id, grants }: Sent): void {
    this.#sent.delete(id);
    for (const { done } of grants) done('none');
  }

  #handleUnreadAnswers(): void {
    const port = this.#port;
    if (port === null) return;
    for (let come = receiveMessageOnPort(port); come !== undefined; come = receiveMessageOnPort(port)) {
      this.#handleAnswer((come as { readonly message: GrantAnswer }).message);
    }
  }

  #handleAnswer({ id, refused }: GrantAnswer): void {
    const sent = this.#sent.get(id);
    this.#sent.delete(id);
    if (refused !== null && refused > 0) this.onRefused(refused);
    const granted: Granted = refused === null ? 'none' : refused === 0 ? 'all' : 'some';
    for (const { done } of sent?.grants ?? []) done(granted);
  }
}

function rowsOf(grants: readonly PendingGrant[]): Omit<GrantRequest, 'id'> {
  const patterns: string[] = [];
  const addresses: Address[] = [];
  const expiriesNs: number[] = [];
  for (const each of grants) {
    for (const pattern of each.patterns) {
      for (const address of each.addresses) {
        patterns.push(pattern);
        addresses.push(address);
        expiriesNs.push(each.expiryNs);
      }
    }
  }
  return { patterns, addresses, expiriesNs: Float64Array.from(expiriesNs) };
}
