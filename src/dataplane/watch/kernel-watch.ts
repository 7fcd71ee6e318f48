import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { EventFact, EventSource } from '#contracts/datapath/event-source.js';
import { EventFd } from '#libc/event-fd.js';
import { built } from '#threads/built-file.js';
import type { KernelNotifications } from './kernel-notifications.js';

/**
 * Indexes of the 32-bit words in the memory that the kernel-watch thread shares with the thread that started
 * it.
 */
export const KERNEL_WATCH = { end: 0, ended: 1, batchesTaken: 2, words: 3 } as const;

/**
 * File descriptors of the BPF maps that the kernel-watch thread reads, and the size of the ring buffer
 * `events`. The descriptors must stay open until that thread has ended.
 */
export type KernelWatchMaps = Readonly<Record<'events' | 'ringBytes' | 'counters' | 'active', number>>;
export type KernelWatchInput = {
  readonly eventFd: number;
  readonly shared: Int32Array;
  readonly maps: KernelWatchMaps;
  readonly batches: MessagePort;
};

const END_TIMEOUT_MS = 5_000;

/**
 * Starts the kernel-watch thread, which waits for kernel notifications and reads events from the ring
 * buffer. Calls `onNotifications` for each notification, and `onFailure` after that thread has ended with an
 * error.
 */
export class KernelWatch {
  readonly source: EventSource;
  readonly #facts: MessagePort;
  readonly #eventFd = new EventFd();
  readonly #shared = new Int32Array(new SharedArrayBuffer(KERNEL_WATCH.words * 4));
  readonly #worker: Worker;

  constructor(
    maps: KernelWatchMaps,
    onNotifications: (notifications: KernelNotifications) => void,
    onFailure: (failure: Error) => void,
  ) {
    const { port1, port2 } = new MessageChannel();
    const facts = new MessageChannel();
    this.#facts = facts.port1;
    const taken = new Int32Array(this.#shared.buffer, KERNEL_WATCH.batchesTaken * 4, 1);
    this.source = { batches: port1, facts: facts.port2, taken };
    const workerData: KernelWatchInput = { eventFd: this.#eventFd.fd, shared: this.#shared, maps, batches: port2 };
    this.#worker = new Worker(built('node/kernel-watch.worker.cjs'), {
      workerData,
      transferList: [port2],
      execArgv: [],
    });
    this.#worker.on('message', onNotifications);
    this.#worker.on('error', (failure) => {
      // A kernel-watch thread that could not start does not set the word `ended`. Set it here; otherwise the
      // method `end` would wait until its time-out.
      Atomics.store(this.#shared, KERNEL_WATCH.ended, 1);
      onFailure(failure);
    });
  }

  /** Sends rule names or interface names to the thread that reads the events. */
  tell(fact: EventFact): void {
    this.#facts.postMessage(fact);
  }

  /**
   * Ends the kernel-watch thread. Returns when that thread has closed its file descriptors and unmapped its
   * memory, and throws if this takes more than 5 s.
   */
  end(): void {
    this.#facts.close();
    this.#worker.removeAllListeners('message');
    Atomics.store(this.#shared, KERNEL_WATCH.end, 1);
    this.#eventFd.signal();
    if (Atomics.wait(this.#shared, KERNEL_WATCH.ended, 0, END_TIMEOUT_MS) === 'timed-out')
      throw new Error('end the kernel-watch thread: it did not end in time');
    this.#eventFd.close();
  }
}
