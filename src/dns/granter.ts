import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { GrantAccess } from '#dataplane/grants/grant-access.js';
import { type OpenedWriter, openGrantWriter } from '#dataplane/grants/grant-writer.js';
import type { GrantAnswer, GrantRequest } from '#policy/grant-port.js';
import type { Pump, Sender } from '#sockets/pump.js';
import { monotonicNs, nowMs } from './clock.js';
import { TransientMap } from './transient-map.js';

/** D12: who waits longer gets SERVFAIL. */
const PATIENCE_MS = 100;

/** How much of what was asked for is in force: `some` where the table was full. */
export type Granted = 'all' | 'some' | 'none';
type Done = (granted: Granted) => void;
type Sent = { readonly id: number; readonly waiting: readonly Done[]; readonly until: number };

/**
 * Has addresses learned. They are written here, as soon as the datapath has said how; it is asked for what cannot be: while
 * it writes itself, where it must make room, or before it has said so. What is asked for in one turn of the pump goes in one
 * message.
 */
export class Granter implements Sender {
  #port: MessagePort | null = null;
  #writer: OpenedWriter | null = null;
  #lastId = 0;
  #patterns: string[] = [];
  #addresses: number[] = [];
  #expiriesNs: number[] = [];
  #waiting: Done[] = [];
  #isToBeFlushed = false;
  readonly #sent = new TransientMap<number, Sent>();

  constructor(
    private readonly pump: Pick<Pump, 'hasToSend'>,
    /** Called with how many addresses were not learned since the table was full. */
    private readonly onRefused: (count: number) => void,
    private readonly patienceMs = PATIENCE_MS,
    private readonly openWriter: (access: GrantAccess) => OpenedWriter = openGrantWriter,
  ) {}

  /** From now on by this port. What was asked of another one fails. */
  use(port: MessagePort | null): void {
    this.#port?.close();
    this.#port = port;
    this.#write(null);
    for (const sent of this.#sent.values()) this.#fail(sent);
    port?.on('message', (message: GrantAnswer | GrantAccess) => this.#take(message));
    port?.on('close', () => {
      if (this.#port === port) this.use(null);
    });
  }

  /**
   * Grants all addresses to all patterns, until a time of the monotonic clock in nanoseconds. Calls back once that is in
   * force; with 'none' also where it is not within 100 ms. What nobody waits for goes with what somebody does, or at the
   * next `tick`.
   */
  grant(
    patterns: readonly string[],
    addresses: readonly number[],
    { expiryNs, isAwaited, done }: { readonly expiryNs: number; readonly isAwaited: boolean; readonly done: Done },
  ): void {
    if (this.#port === null) {
      done('none');
      return;
    }
    if (this.#writer?.grant(patterns, addresses, expiryNs, monotonicNs(nowMs())) === true) {
      done('all');
      return;
    }
    if (isAwaited) this.hurry();
    for (const pattern of patterns) {
      for (const address of addresses) {
        this.#patterns.push(pattern);
        this.#addresses.push(address);
        this.#expiriesNs.push(expiryNs);
      }
    }
    this.#waiting.push(done);
  }

  /** Somebody waits now for what nobody waited for. */
  hurry(): void {
    if (this.#isToBeFlushed) return;
    this.#isToBeFlushed = true;
    this.pump.hasToSend(this);
  }

  /** Sends what nobody waits for, and fails what waited for too long; to be called every few milliseconds. */
  tick(): void {
    this.flush();
    const now = nowMs();
    if ((this.#sent.oldest()?.until ?? now + 1) > now) return;
    // It may be this thread that was late.
    this.#takeAll();
    for (const sent of this.#sent.values()) {
      if (sent.until > now) return;
      this.#fail(sent);
    }
  }

  #fail({ id, waiting }: Sent): void {
    this.#sent.delete(id);
    for (const done of waiting) done('none');
  }

  flush(): number {
    this.#isToBeFlushed = false;
    if (this.#waiting.length === 0) return 0;
    const waiting = this.#waiting;
    const request: GrantRequest = {
      id: ++this.#lastId,
      patterns: this.#patterns,
      addresses: Uint32Array.from(this.#addresses),
      expiriesNs: Float64Array.from(this.#expiriesNs),
    };
    this.#waiting = [];
    this.#patterns = [];
    this.#addresses = [];
    this.#expiriesNs = [];
    if (this.#port === null) {
      for (const done of waiting) done('none');
      return 0;
    }
    this.#sent.set(request.id, { id: request.id, waiting, until: nowMs() + this.patienceMs });
    this.#port.postMessage(request);
    return 0;
  }

  #takeAll(): void {
    const port = this.#port;
    if (port === null) return;
    for (let come = receiveMessageOnPort(port); come !== undefined; come = receiveMessageOnPort(port)) {
      this.#take((come as { readonly message: GrantAnswer | GrantAccess }).message);
    }
  }

  #write(access: GrantAccess | null): void {
    this.#writer?.close();
    this.#writer = null;
    try {
      if (access !== null) this.#writer = this.openWriter(access);
    } catch {
      // It is closed already, or will not be written by anybody else: whoever has it is asked.
    }
  }

  #take(message: GrantAnswer | GrantAccess): void {
    if ('ledger' in message) {
      this.#write(message);
      return;
    }
    const { id, refused } = message;
    const sent = this.#sent.get(id);
    this.#sent.delete(id);
    if (refused !== null && refused > 0) this.onRefused(refused);
    const granted: Granted = refused === null ? 'none' : refused === 0 ? 'all' : 'some';
    for (const done of sent?.waiting ?? []) done(granted);
  }
}
