import { added, type Frame, frameOf, isNothing, type Lost, lostMessages, NOTHING_LOST } from './frame.js';

/** The connection to a wiretap reader: a WebSocket, or a stream of Server-Sent Events. */
export type Sink = {
  /** Number of bytes that were passed to `send` and that the socket of the client has not accepted yet. */
  readonly waiting: number;
  /** Number of frames that the socket has accepted for sending. */
  readonly taken: number;
  /** Sends a frame. `done` is called when the socket has accepted the frame. */
  send(frame: Uint8Array, done?: () => void): void;
  close(why: 'too_slow' | 'too_many' | 'going_away' | 'performance_mode_disabled' | 'token_ended'): void;
};

/**
 * The limit of bytes that wait to be sent, for all readers together; each reader gets an equal part. The
 * memory in use is usually smaller, because readers of a channel share the memory of their frames.
 */
const WAITING_BYTES = 256 * 1024 * 1024;
/**
 * The smallest and the largest limit of bytes that wait to be sent to one reader. `WAITING_MOST` bytes are
 * 0.2 s of messages at 100,000 messages per second.
 */
const WAITING_LEAST = 256 * 1024;
const WAITING_MOST = 8 * 1024 * 1024;
/** Messages that report losses may exceed the limit of bytes that wait for a reader by this many bytes. */
const LOST_BYTES = 64 * 1024;
const LOOK_MS = 500;
const STALLED_MS = 60_000;
/** After this number of sends, `#write` yields to other work of the main thread, such as API requests. */
const SENDS_AT_ONCE = 64;

/**
 * Adds a reader to a channel. The queue holds it between frames, so that the reader gets only later frames.
 */
type Subscription = { readonly reader: number; readonly channel: number };
type Reader = { readonly sink: Sink; lost: Lost; channel: number | null; taken: number; stalledSince: number | null };

export type ReadersOutput = {
  /**
   * Called when the previous replay frame for a reader was written, so that the reader can receive the next
   * one.
   */
  more(reader: number): void;
  closed(reader: number): void;
  /** Called when frames of this many bytes in total were written to sockets or discarded. */
  written(bytes: number): void;
};

/** Writes wiretap frames to the sockets of readers, and reports lost messages to each reader. */
export class Readers {
  readonly #output: ReadersOutput;
  readonly #readers = new Map<number, Reader>();
  readonly #channels = new Map<number, Set<number>>();
  readonly #queue: (Frame | Subscription)[] = [];
  readonly #timer: NodeJS.Timeout;
  #last = 0;
  #isWriting = false;
  /** Number of messages that `#send` dropped because readers read too slowly, in total for all readers. */
  lost = 0;

  constructor(output: ReadersOutput) {
    this.#output = output;
    this.#timer = setInterval(() => this.#look(performance.now()), LOOK_MS);
    this.#timer.unref();
  }

  /**
   * The limit of bytes that wait to be sent to each reader. Above the limit, messages for the reader are
   * dropped until the network has accepted enough bytes.
   */
  get #waitingBytes(): number {
    return Math.min(WAITING_MOST, Math.max(WAITING_LEAST, WAITING_BYTES / Math.max(1, this.#readers.size)));
  }

  get count(): number {
    return this.#readers.size;
  }

  open(sink: Sink): number {
    const number = ++this.#last;
    this.#readers.set(number, { sink, lost: NOTHING_LOST, channel: null, taken: 0, stalledSince: null });
    return number;
  }

  /** Removes a reader. No more frames are sent to the reader. */
  close(number: number): void {
    const reader = this.#readers.get(number);
    if (reader === undefined) return;
    this.#readers.delete(number);
    if (reader.channel !== null) this.#channels.get(reader.channel)?.delete(number);
    this.#output.closed(number);
  }

  closeAll(why: Parameters<Sink['close']>[0]): void {
    for (const number of [...this.#readers.keys()]) this.end(number, why);
  }

  end(number: number, why: Parameters<Sink['close']>[0]): void {
    const reader = this.#readers.get(number);
    this.close(number);
    reader?.sink.close(why);
  }

  /** Adds a reader to a channel. All later frames of this channel also go to this reader. */
  subscribe(number: number, channel: number): void {
    this.#take({ reader: number, channel });
  }

  /** Writes a frame to its readers. Frames are written in the order of the calls. */
  frame(frame: Frame): void {
    this.#take(frame);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.closeAll('going_away');
  }

  #take(next: Frame | Subscription): void {
    this.#queue.push(next);
    if (!this.#isWriting) void this.#write();
  }

  async #write(): Promise<void> {
    this.#isWriting = true;
    let sends = 0;
    for (let frame = this.#queue.shift(); frame !== undefined; frame = this.#queue.shift()) {
      if ('channel' in frame) {
        this.#subscribe(frame);
        continue;
      }
      const { to, bytes } = frame;
      for (const number of 'reader' in to ? [to.reader] : [...(this.#channels.get(to.channel) ?? [])]) {
        this.#send(number, frame, 'reader' in to);
        if (++sends % SENDS_AT_ONCE === 0) await new Promise((resolve) => setImmediate(resolve));
      }
      this.#output.written(bytes.length);
    }
    this.#isWriting = false;
  }

  #subscribe({ reader: number, channel }: Subscription): void {
    const reader = this.#readers.get(number);
    if (reader === undefined) return;
    reader.channel = channel;
    const members = this.#channels.get(channel) ?? new Set();
    this.#channels.set(channel, members.add(number));
  }

  #send(number: number, { bytes, messages, lost }: Frame, isKept: boolean): void {
    const reader = this.#readers.get(number);
    if (reader === undefined) return;
    reader.lost = added(reader.lost, lost);
    if (!isKept && reader.sink.waiting >= this.#waitingBytes) {
      reader.lost = added(reader.lost, { ...NOTHING_LOST, reader: messages });
      this.lost += messages;
      return;
    }
    sendLost(reader);
    if (bytes.length > 0) reader.sink.send(bytes, isKept ? () => this.#output.more(number) : undefined);
    else if (isKept) this.#output.more(number);
  }

  #look(now: number): void {
    for (const [number, reader] of this.#readers) {
      const { waiting, taken } = reader.sink;
      if (waiting < this.#waitingBytes + LOST_BYTES) sendLost(reader);
      if (waiting === 0 || taken !== reader.taken) reader.stalledSince = null;
      else reader.stalledSince ??= now;
      reader.taken = taken;
      if (reader.stalledSince !== null && now - reader.stalledSince >= STALLED_MS) this.end(number, 'too_slow');
    }
    for (const [channel, members] of this.#channels) if (members.size === 0) this.#channels.delete(channel);
  }
}

function sendLost(reader: Reader): void {
  if (isNothing(reader.lost)) return;
  const messages = lostMessages(reader.lost);
  reader.lost = NOTHING_LOST;
  reader.sink.send(frameOf(messages));
}
