import { formatAddress } from '#addresses/ip-address.js';
import type { SeenLookups } from '#contracts/dns/seen-lookup.js';
import type { SeenConnections } from '#contracts/service-plane/seen-connection.js';
import type { EventBatch } from '#dataplane/events/batch.js';
import { MessageCache } from '#observe/wiretap/messages/message-cache.js';
import { type MessageSurroundings, MessageWriter } from '#observe/wiretap/messages/message-writer.js';
import { added, type Frame, isNothing, type Lost, less, NOTHING_LOST } from './frame.js';
import { type FoldedFrame, MessageFold } from './message-fold.js';
import { ReplayBuffer, type ReplayEntry } from './replay-buffer.js';
import { type Seen, sizeOf } from './seen-batch.js';
import { CompiledFilter, type WiretapFilter } from './wiretap-filter.js';

/**
 * The maximum number of different filters, which bounds CPU time: the hub evaluates every filter for every
 * event. At the maximum, the hub refuses a reader with another filter.
 */
const CHANNELS = 128;
/**
 * The maximum number of messages in a frame, which bounds the size of a frame. A message has 300 to 500
 * bytes.
 */
const FRAME_MESSAGES = 512;
/**
 * The limit of bytes in frames that the hub has sent to the main thread and that the main thread has not yet
 * written to sockets. Above the limit, the hub drops new messages and counts them as lost.
 */
const UNDER_WAY_BYTES = 32 * 1024 * 1024;

/**
 * Returns the bytes of a frame that only reports losses. Each frame needs a new array, because the array is
 * transferred to another thread and then cannot be used again.
 */
const noBytes = (): Uint8Array<ArrayBuffer> => new Uint8Array(0);

type Channel = {
  readonly number: number;
  readonly key: string;
  readonly filter: CompiledFilter;
  /** For how long equal messages are folded into one, in milliseconds; 0 to send each message at once. */
  readonly foldMs: number;
  readonly fold: MessageFold | null;
  /** Runs while `fold` has rows, until they are sent. */
  timer: NodeJS.Timeout | undefined;
  readers: number;
  lost: Lost;
};
/**
 * The position of a reader in the replay buffer. The next message to send is message `index` of replay entry
 * `entry`. `count` is the number of all messages before this position.
 */
type Replay = {
  readonly channel: Channel;
  entry: number;
  index: number;
  count: number;
  /** The events lost between the creation of the hub and this position of the reader. */
  lostBefore: Lost;
  /** Lost events that no frame has reported to the reader yet. */
  lost: Lost;
};

export type HubOutput = {
  frame(frame: Frame): void;
  /**
   * Called when a reader subscribes to a channel. All later frames of this channel must also go to this
   * reader.
   */
  subscribed(reader: number, channel: number): void;
  /** Called when a reader cannot be added because there are too many different filters. */
  refused(reader: number): void;
};

/**
 * Builds wiretap frames. All readers with the same filter and the same time of folding share a channel, so
 * each frame is built once per channel. A new reader first receives messages of the replay buffer; each
 * replay frame is sent after the previous one was written. At the end of the replay buffer, the reader
 * subscribes to its channel, so that it gets each message exactly once.
 */
export class WiretapHub {
  readonly #known: MessageSurroundings;
  readonly #writer: MessageWriter;
  readonly #live: MessageCache;
  readonly #again: MessageCache;
  readonly #foldedAgain: MessageFold;
  readonly #output: HubOutput;
  readonly #kept: ReplayBuffer;
  readonly #channels = new Map<string, Channel>();
  readonly #channelOf = new Map<number, Channel>();
  readonly #replays = new Map<number, Replay>();
  #lastChannel = 0;
  #underWay = 0;
  messages = 0;

  constructor(known: MessageSurroundings, output: HubOutput, replayMs: number) {
    this.#known = known;
    this.#writer = new MessageWriter(known);
    this.#live = new MessageCache(this.#writer);
    this.#again = new MessageCache(this.#writer);
    this.#foldedAgain = new MessageFold(this.#writer);
    this.#output = output;
    this.#kept = new ReplayBuffer(replayMs);
  }

  get readers(): number {
    return this.#channelOf.size;
  }

  /**
   * Whether the datapath must report flow events: a reader needs flow events now, or the replay buffer keeps
   * flow events for later readers.
   */
  get wantsFlows(): boolean {
    return this.#kept.keepsMs > 0 || [...this.#channels.values()].some(({ filter }) => filter.wantsFlows);
  }

  /** Whether a reader needs events of allowed DNS lookups. The DNS proxy always reports denied lookups. */
  get wantsLookups(): boolean {
    return [...this.#channels.values()].some(({ filter }) => filter.wantsLookups);
  }

  /**
   * Whether a reader needs events of allowed connections and requests. The service plane (TLS and HTTP
   * inspection) always reports denied ones.
   */
  get wantsConnections(): boolean {
    return [...this.#channels.values()].some(({ filter }) => filter.wantsAllowedConnections);
  }

  /**
   * Adds a reader. The reader first receives the messages of the replay buffer that arrived at or after
   * `sinceMs`, in milliseconds since 1970. Equal messages within `foldMs` milliseconds are folded into one; 0
   * to fold none.
   */
  open(reader: number, filter: WiretapFilter, sinceMs: number, foldMs = 0): void {
    const channel = this.#channelFor(filter, foldMs);
    if (channel === undefined) {
      this.#output.refused(reader);
      return;
    }
    channel.readers++;
    this.#channelOf.set(reader, channel);
    const entry = this.#kept.since(sinceMs);
    const { count, lost } = this.#kept.before(entry);
    this.#replays.set(reader, { channel, entry, index: 0, count, lostBefore: lost, lost: NOTHING_LOST });
    this.more(reader);
  }

  /**
   * Sends the next replay frame to a reader. Call this method when the reader's previous replay frame was
   * written to its socket.
   */
  more(reader: number): void {
    const replay = this.#replays.get(reader);
    if (replay === undefined) return;
    if (replay.entry < this.#kept.first) {
      const { forgotten, forgottenLost } = this.#kept;
      replay.lost = added(replay.lost, less(forgottenLost, replay.lostBefore));
      replay.lost = added(replay.lost, { ...NOTHING_LOST, reader: forgotten - replay.count });
      replay.count = forgotten;
      replay.lostBefore = forgottenLost;
      replay.entry = this.#kept.first;
      replay.index = 0;
    }
    let given = 0;
    while (given === 0 && replay.entry < this.#kept.end) given = this.#readOn(reader, replay);
    if (given === 0 && !isNothing(replay.lost))
      this.#replayed(reader, replay, { bytes: noBytes(), rows: 0, messages: 0 });
    if (replay.entry < this.#kept.end) return;
    this.#replays.delete(reader);
    // The fold of the channel has messages that this reader already received by the replay. Send them to the
    // other readers before this reader subscribes, so that it does not receive them twice.
    this.#flush(replay.channel);
    this.#output.subscribed(reader, replay.channel.number);
  }

  close(reader: number): void {
    const channel = this.#channelOf.get(reader);
    if (channel === undefined) return;
    this.#channelOf.delete(reader);
    this.#replays.delete(reader);
    if (--channel.readers > 0) return;
    this.#channels.delete(channel.key);
    clearTimeout(channel.timer);
  }

  /** Call this method when frames of `bytes` bytes in total were written to sockets or discarded. */
  written(bytes: number): void {
    this.#underWay -= bytes;
    if (this.#underWay > UNDER_WAY_BYTES) return;
    for (const channel of this.#channels.values()) this.#sendLost(channel);
  }

  events(batch: EventBatch, nowMs: number): void {
    const lost = { ...NOTHING_LOST, kernel: batch.lost, source_share: batch.suppressed };
    this.#see({ kind: 'events', batch }, lost, nowMs);
  }

  lookups(seen: SeenLookups, nowMs: number): void {
    this.#see({ kind: 'lookups', lookups: seen.lookups }, { ...NOTHING_LOST, dns: seen.lost }, nowMs);
  }

  connections({ connections, lost }: SeenConnections, nowMs: number): void {
    this.#see({ kind: 'connections', connections }, { ...NOTHING_LOST, service_plane: lost }, nowMs);
  }

  #see(seen: Seen, lost: Lost, nowMs: number): void {
    if (this.#channels.size > 0) {
      const written = this.#live.of(seen);
      for (const channel of this.#channels.values()) {
        if (!channel.filter.wants(seen.kind)) continue;
        channel.lost = added(channel.lost, lost);
        const found = matching(seen, channel.filter);
        if (channel.fold === null) this.#tell(channel, found, written);
        else this.#fold(channel, channel.fold, seen, found);
      }
    }
    this.#kept.add({ atMs: nowMs, seen, lost });
  }

  #channelFor(filter: WiretapFilter, foldMs: number): Channel | undefined {
    const plain = (_: string, value: unknown): unknown => (typeof value === 'bigint' ? formatAddress(value) : value);
    const key = JSON.stringify([filter, foldMs], plain);
    const known = this.#channels.get(key);
    if (known !== undefined) return known;
    if (this.#channels.size >= CHANNELS) return undefined;
    const compiled = new CompiledFilter(filter, this.#known);
    const fold = foldMs === 0 ? null : new MessageFold(this.#writer);
    const number = ++this.#lastChannel;
    const shared = { number, key, filter: compiled, foldMs, fold, timer: undefined };
    const channel: Channel = { ...shared, readers: 0, lost: NOTHING_LOST };
    this.#channels.set(key, channel);
    return channel;
  }

  #tell(channel: Channel, found: readonly number[], written: MessageCache): void {
    const to = { channel: channel.number };
    if (this.#underWay > UNDER_WAY_BYTES) {
      channel.lost = added(channel.lost, { ...NOTHING_LOST, reader: found.length });
      return;
    }
    for (let from = 0; from < found.length; from += FRAME_MESSAGES) {
      const indexes = found.slice(from, from + FRAME_MESSAGES);
      this.#give({ to, bytes: written.frame(indexes), messages: indexes.length, lost: channel.lost });
      channel.lost = NOTHING_LOST;
    }
    this.#sendLost(channel);
  }

  #fold(channel: Channel, fold: MessageFold, seen: Seen, found: readonly number[]): void {
    for (const index of found) {
      if (fold.isFull) this.#flush(channel);
      fold.add(seen, index);
    }
    if (fold.size > 0) channel.timer ??= setTimeout(() => this.#flush(channel), channel.foldMs).unref();
    // Losses do not wait for the end of the window, because a reader must be told within a second.
    if (this.#underWay <= UNDER_WAY_BYTES) this.#sendLost(channel);
  }

  /**
   * Sends the combined messages (rows) of a channel that folds equal messages. The next message begins a new
   * period.
   */
  #flush(channel: Channel): void {
    clearTimeout(channel.timer);
    channel.timer = undefined;
    const to = { channel: channel.number };
    for (const { bytes, rows, messages } of channel.fold?.drain(FRAME_MESSAGES) ?? []) {
      if (this.#underWay > UNDER_WAY_BYTES) {
        channel.lost = added(channel.lost, { ...NOTHING_LOST, reader: messages });
        continue;
      }
      this.#give({ to, bytes, messages, lost: channel.lost }, rows);
      channel.lost = NOTHING_LOST;
    }
  }

  #sendLost(channel: Channel): void {
    if (isNothing(channel.lost)) return;
    this.#give({ to: { channel: channel.number }, bytes: noBytes(), messages: 0, lost: channel.lost });
    channel.lost = NOTHING_LOST;
  }

  /**
   * Sends a reader the next matching messages of the current replay entry, at most one frame. Returns the
   * number of messages sent.
   */
  #readOn(reader: number, replay: Replay): number {
    const { filter } = replay.channel;
    const { seen, lost } = this.#kept.at(replay.entry) as ReplayEntry;
    if (replay.index === 0) {
      replay.lost = added(replay.lost, lost);
      replay.lostBefore = added(replay.lostBefore, lost);
    }
    const size = sizeOf(seen);
    const matches = filter.testOf(seen);
    const found: number[] = [];
    for (; replay.index < size && found.length < FRAME_MESSAGES; replay.index++, replay.count++)
      if (matches(replay.index)) found.push(replay.index);
    if (found.length > 0) {
      const isFolded = replay.channel.fold !== null;
      const messages = found.length;
      const frames = isFolded
        ? this.#foldedReplay(seen, found)
        : [{ bytes: this.#again.of(seen).frame(found), rows: messages, messages }];
      for (const frame of frames) this.#replayed(reader, replay, frame);
    }
    if (replay.index >= size) {
      replay.entry++;
      replay.index = 0;
    }
    return found.length;
  }

  /** Returns one frame, since `found` has at most as many messages as a frame. */
  #foldedReplay(seen: Seen, found: readonly number[]): readonly FoldedFrame[] {
    for (const index of found) this.#foldedAgain.add(seen, index);
    return this.#foldedAgain.drain(FRAME_MESSAGES);
  }

  #replayed(reader: number, replay: Replay, { bytes, rows, messages }: FoldedFrame): void {
    this.#give({ to: { reader }, bytes, messages, lost: replay.lost }, rows);
    replay.lost = NOTHING_LOST;
  }

  /**
   * Gives a frame to the reader. `rows`: the number of messages in the frame after equal ones were combined.
   */
  #give(frame: Frame, rows: number = frame.messages): void {
    this.#underWay += frame.bytes.length;
    this.messages += rows;
    this.#output.frame(frame);
  }
}

function matching(seen: Seen, filter: CompiledFilter): number[] {
  const matches = filter.testOf(seen);
  const size = sizeOf(seen);
  const found: number[] = [];
  for (let index = 0; index < size; index++) if (matches(index)) found.push(index);
  return found;
}
