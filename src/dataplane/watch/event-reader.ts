import type { MessagePort } from 'node:worker_threads';
import { COUNTER_INDEX } from '#contracts/datapath/datapath-numbers.js';
import { ACTIVE } from '#dataplane/activate/slots.js';
import { type PackedEvents, RECORD_BYTES } from '#dataplane/events/batch.js';
import { counterReader } from '#dataplane/loader/counters.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { EventRing } from './event-ring.js';
import type { KernelWatchMaps } from './kernel-watch.js';

/** Maximum number of records in one batch; a full batch takes 0.85 MB. */
const BATCH_RECORDS = 8_192;
/**
 * While the receiver has not yet read this many batches, `read` leaves further records in the ring buffer.
 * If the ring buffer fills up, the datapath counts the events that are lost.
 */
const BATCHES_UNDER_WAY = 8;
const PAUSE_MS = { shortest: 1, longest: 50, unwanted: 500 } as const;

/** Posts batches of events to a message port. Stops while the receiver is too far behind. */
export class EventReader {
  readonly #ring: EventRing;
  readonly #active: MappedMemory;
  readonly #lostSoFar: () => bigint;
  #lost: bigint;
  #sent = 0;
  #pauseMs: number = PAUSE_MS.longest;

  constructor(
    maps: KernelWatchMaps,
    readonly port: Pick<MessagePort, 'postMessage'>,
    /** Returns how many batches the receiver has read so far. */
    readonly taken: () => number,
  ) {
    this.#ring = new EventRing(maps.events, maps.ringBytes);
    this.#active = new MappedMemory('active', maps.active, ACTIVE.bytes, { readOnly: true });
    const counter = counterReader(maps.counters);
    this.#lostSoFar = () => counter(COUNTER_INDEX.events_lost).packets;
    this.#lost = this.#lostSoFar();
  }

  /**
   * Milliseconds to wait before the next call of `read`. Each call that finds records halves the time, and
   * each call that finds none doubles it. While no kind of event is selected, the time is 500 ms.
   */
  get pauseMs(): number {
    const wanted = Atomics.load(this.#active.words, ACTIVE.eventsWanted) !== 0;
    return wanted ? this.#pauseMs : PAUSE_MS.unwanted;
  }

  read(): void {
    let records = 0;
    for (;;) {
      if (this.#sent - this.taken() >= BATCHES_UNDER_WAY) return;
      const batch = this.#ring.take(BATCH_RECORDS);
      const lostSoFar = this.#lostSoFar();
      if (batch.length === 0 && lostSoFar === this.#lost) break;
      this.#send(batch, Number(lostSoFar - this.#lost));
      this.#lost = lostSoFar;
      records += batch.length / RECORD_BYTES;
      if (batch.length < BATCH_RECORDS * RECORD_BYTES) break;
    }
    const pauseMs = records === 0 ? this.#pauseMs * 2 : this.#pauseMs / 2;
    this.#pauseMs = Math.min(Math.max(pauseMs, PAUSE_MS.shortest), PAUSE_MS.longest);
  }

  close(): void {
    this.#ring.unmap();
    this.#active.unmap();
  }

  #send(batch: Uint8Array<ArrayBuffer>, lost: number): void {
    const packed: PackedEvents = {
      records: batch.buffer,
      count: batch.length / RECORD_BYTES,
      lost,
      monotonicNs: Number(process.hrtime.bigint()),
      unixMs: Date.now(),
    };
    this.port.postMessage(packed, [batch.buffer]);
    this.#sent++;
  }
}
