import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { GrantAccess } from '#contracts/grant-access.js';
import type { GrantAnswer, GrantRequest } from '#contracts/grant-messages.js';
import { type OpenedWriter, openGrantWriter } from '#dataplane/grants/grant-writer.js';
import type { Pump, Sender } from '#sockets/pump.js';
import { monotonicNs, nowMs } from './clock.js';
import { ExpiringMap } from './expiring-map.js';

/** D12: who waits longer gets SERVFAIL. */
const PATIENCE_MS = 100;

/** How much of what was asked for is in force: `some` where the table was full. */
export type Granted = 'all' | 'some' | 'none';
type Done = (granted: Granted) => void;
type Asked = {
  readonly patterns: readonly string[];
  readonly addresses: readonly number[];
  readonly expiryNs: number;
  readonly done: Done;
};
type Sent = { readonly id: number; readonly until: number; asked: readonly Asked[] };

/**
 * Has addresses learned. They are written here, as soon as the datapath has said how; it is asked for what cannot be: while
 * it writes itself, where it must make room, or before it has said so. What it is asked for in one turn of the pump goes in
 * one message, and is written here after all where that can be done before it answers.
 */
export class Granter implements Sender {
  #port: MessagePort | null = null;
  #writer: OpenedWriter | null = null;
  #lastId = 0;
  #asked: Asked[] = [];
  #isToBeFlushed = false;
  readonly #sent = new ExpiringMap<number, Sent>();

  constructor(
    private readonly pump: Pick<Pump, 'hasToSend'>,
    private readonly listener: {
      /** So many addresses were not learned, since the table was full. */
      refused(count: number): void;
      /** Everything is to be asked for, since nothing can be written here. */
      unwritable(): void;
    },
    private readonly patienceMs = PATIENCE_MS,
    private readonly openWriter: (access: GrantAccess) => OpenedWriter = openGrantWriter,
  ) {}

  /** From now on by this port. What was asked of another one fails. */
  use(port: MessagePort | null): void {
    this.#port?.close();
    this.#port = port;
    this.#write(null);
    for (const sent of this.#sent.values()) this.#fail(sent);
    port?.on('message', (message: GrantAnswer | GrantAccess) => {
      if (this.#port === port) this.#take(message);
    });
    port?.on('close', () => {
      if (this.#port === port) this.use(null);
    });
  }

  /**
   * Grants all addresses to all patterns, until a time of the monotonic clock in nanoseconds. Calls back once that is in
   * force, at once where it can be; with 'none' also where it is not within 100 ms. What is asked for and nobody waits for goes
   * with what somebody does, or at the next `tick`.
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
    const asked: Asked = { patterns, addresses, expiryNs, done };
    if (this.#isWritten(asked)) return;
    if (isAwaited) this.hurry();
    this.#asked.push(asked);
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
    if (this.#sent.oldest() === undefined) return;
    // It may be this thread that was late.
    this.#takeAll();
    const now = nowMs();
    for (const sent of this.#sent.values()) {
      // Who is asked may be at something that takes longer than anybody waits.
      sent.asked = sent.asked.filter((asked) => !this.#isWritten(asked));
      if (sent.asked.length === 0 || sent.until <= now) this.#fail(sent);
    }
  }

  flush(): number {
    this.#isToBeFlushed = false;
    const asked = this.#asked.filter((each) => !this.#isWritten(each));
    this.#asked = [];
    if (asked.length === 0) return 0;
    if (this.#port === null) {
      for (const { done } of asked) done('none');
      return 0;
    }
    const sent: Sent = { id: ++this.#lastId, asked, until: nowMs() + this.patienceMs };
    this.#sent.set(sent.id, sent);
    this.#port.postMessage({ id: sent.id, ...rowsOf(asked) } satisfies GrantRequest);
    return 0;
  }

  #isWritten({ patterns, addresses, expiryNs, done }: Asked): boolean {
    if (this.#writer?.grant(patterns, addresses, expiryNs, monotonicNs(nowMs())) !== true) return false;
    done('all');
    return true;
  }

  #fail({ id, asked }: Sent): void {
    this.#sent.delete(id);
    for (const { done } of asked) done('none');
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
      this.listener.unwritable();
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
    if (refused !== null && refused > 0) this.listener.refused(refused);
    const granted: Granted = refused === null ? 'none' : refused === 0 ? 'all' : 'some';
    for (const { done } of sent?.asked ?? []) done(granted);
  }
}

function rowsOf(asked: readonly Asked[]): Omit<GrantRequest, 'id'> {
  const patterns: string[] = [];
  const addresses: number[] = [];
  const expiriesNs: number[] = [];
  for (const each of asked) {
    for (const pattern of each.patterns) {
      for (const address of each.addresses) {
        patterns.push(pattern);
        addresses.push(address);
        expiriesNs.push(each.expiryNs);
      }
    }
  }
  return { patterns, addresses: Uint32Array.from(addresses), expiriesNs: Float64Array.from(expiriesNs) };
}
