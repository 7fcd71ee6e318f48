import { u32At } from '#arrays/read.js';
import { CapacityExceeded, type Enforced, type EventsWanted, type Flipped } from '#contracts/datapath/datapath.js';
import {
  EVENTS_WANTED,
  IMAGE_MAGIC,
  LAYOUT_VERSION,
  LINE_BYTES,
  LINE_WORDS,
} from '#contracts/datapath/datapath-numbers.js';
import { UNSET } from '#dataplane/image/cache-lines.js';
import { HEADER, type Image } from '#dataplane/image/program-image.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { MappedMemory, PAGE_BYTES } from '#libc/mapped-memory.js';
import { sha256 } from './image-digest.js';

/** The largest epoch (activation number). With a larger one, the active word has the bit `RECLASSIFY`. */
const MAX_EPOCH = 0x3fff_ffff;
/**
 * Offsets of the fields of `struct active` of `bpf/weir.h`, in 32-bit words; `bytes` is the size of the
 * struct in bytes.
 */
export const ACTIVE = {
  word: 0,
  layoutVersion: 1,
  pickupUntilNs: 2,
  eventsWanted: 4,
  translates: 5,
  directUntilNs: 6,
  bytes: 32,
} as const;

/**
 * The two slots of the map `program`, each for one compiled policy, and the active word in the map `active`.
 * The active word selects the slot in force, and contains the epoch, which counts the activations of
 * policies. `fill` fills the idle slot, `Prover` verifies the filled slot, and `flip` puts that slot in
 * force.
 */
export class Slots {
  readonly #programFd: number;
  readonly #active: MappedMemory;
  /** The first 64 bytes of each policy slot, mapped by mmap; undefined until the first use of the slot. */
  readonly #headers: [MappedLines?, MappedLines?] = [];
  readonly #directUntil: BigUint64Array;
  #staged = false;
  /**
   * The active word of the predecessor, the datapath that this process takes over from; 0 if there is no
   * predecessor. The epochs continue from that word. `fill` does not overwrite the slot number that the word
   * selects.
   */
  #wordBefore = 0;
  /**
   * True if a CPU may still read the idle slot for a packet. True after each call of `flip`. Also true when
   * this object is created, because an earlier process may have put a policy in force just before.
   */
  #graceDue = true;

  constructor(
    fds: { readonly program: number; readonly active: number },
    readonly slotLines: number,
  ) {
    this.#programFd = fds.program;
    this.#active = new MappedMemory('active', fds.active, ACTIVE.bytes);
    this.#directUntil = new BigUint64Array(this.#active.buffer, ACTIVE.directUntilNs * 4, 1);
  }

  /** The epoch (activation number) of the policy in force; 0 if no policy was activated in this map yet. */
  get epoch(): number {
    return this.#word() >>> 1;
  }

  /** The epoch (activation number) of the next policy that `flip` puts in force. */
  get nextEpoch(): number {
    const before = (this.#word() || this.#wordBefore) >>> 1;
    // An earlier build may have stored a larger epoch.
    return before >= MAX_EPOCH ? 1 : before + 1;
  }

  /**
   * The number of the slot in force. Before this datapath has put a policy in force, it is the slot number
   * that the predecessor has in force; undefined if there is no predecessor.
   */
  get slotInForce(): 0 | 1 | undefined {
    if ((this.#word() || this.#wordBefore) === 0) return undefined;
    return this.idleSlot === 0 ? 1 : 0;
  }

  get layoutVersion(): number {
    return this.#active.words[ACTIVE.layoutVersion] ?? 0;
  }

  get staged(): boolean {
    return this.#staged;
  }

  /** The slot that the next call of `fill` writes to. */
  get idleSlot(): 0 | 1 {
    return ((this.#word() || this.#wordBefore) & 1) === 0 ? 1 : 0;
  }

  /**
   * Returns the generation in force with its time, the size in cache lines and the SHA-256 digest of the
   * image in force (a compiled policy as the BPF programs read it). The digest depends neither on the
   * generation nor on the time. Returns null if no image is in force.
   */
  inForce(): (Enforced & { readonly lines: number; readonly imageSha256: string }) | null {
    const header = this.#headerInForce();
    if (header === null) return null;
    const { base, lines, generation, sinceMs } = header;
    const imageSha256 = this.#mapped(base, lines, (words) => {
      const first = words.slice(0, LINE_WORDS);
      first[HEADER.generationLow] = 0;
      first[HEADER.generationHigh] = 0;
      // The time of activation is cleared only in an image of this layout version: other versions have other
      // fields at this place.
      if (first[HEADER.layoutVersion] === LAYOUT_VERSION) first.fill(UNSET, HEADER.sinceLow, HEADER.sinceHigh + 1);
      return sha256(first, words.subarray(LINE_WORDS));
    });
    return { generation, sinceMs, lines, imageSha256 };
  }

  /** Returns the generation in force (the API's activation number) with its time; null if there is none. */
  enforced(): Enforced | null {
    const header = this.#headerInForce();
    return header === null ? null : { generation: header.generation, sinceMs: header.sinceMs };
  }

  sizeInForce(): { readonly generation: number; readonly lines: number } {
    const header = this.#headerInForce();
    return header === null ? { generation: 0, lines: 0 } : { generation: header.generation, lines: header.lines };
  }

  /**
   * Writes an image (a compiled policy as the BPF programs read it) to the idle slot. First waits until no
   * CPU reads that slot for a packet. Throws `CapacityExceeded` if the image is larger than a slot.
   */
  fill(image: Image, generation: number): void {
    if (image.lines > this.slotLines) throw new CapacityExceeded('program', image.lines, this.slotLines);
    this.#staged = false;
    this.awaitIdle();
    // Map both headers now: a mapping can fail. `flip` and `enforced` use the headers after the policy is
    // committed to the store, and must not fail then.
    this.#header(0);
    this.#header(1);
    this.#mapped(this.idleSlot * this.slotLines, image.lines, (words) => {
      words.set(image.words);
      words[HEADER.generationLow] = generation % 0x1_0000_0000;
      words[HEADER.generationHigh] = Math.floor(generation / 0x1_0000_0000);
    });
    this.#staged = true;
  }

  unstage(): void {
    this.#staged = false;
  }

  /**
   * Puts the filled slot in force by one atomic store of the active word. Returns the new epoch, and the time
   * since when the kernel enforces the generation. A generation that is already in force, for example after a
   * restart of the process, keeps its time. `before` is the generation that the kernel enforced until now,
   * also if it is in force in the predecessor. Maps no memory, because the kernel can refuse a mapping, and
   * at this point the policy is already committed to the store.
   */
  flip(before: Enforced | null = this.enforced()): Omit<Flipped, 'uncompiled'> {
    if (!this.#staged) throw new Error('nothing is staged');
    const epoch = this.nextEpoch;
    const words = this.#header(this.idleSlot);
    const sinceMs = (before?.generation === generationIn(words) ? before.sinceMs : null) ?? Date.now();
    words[HEADER.sinceLow] = sinceMs % 0x1_0000_0000;
    words[HEADER.sinceHigh] = Math.floor(sinceMs / 0x1_0000_0000);
    this.#active.words[ACTIVE.layoutVersion] = LAYOUT_VERSION;
    Atomics.store(this.#active.words, ACTIVE.word, epoch * 2 + this.idleSlot);
    this.#staged = false;
    this.#graceDue = true;
    return { epoch, sinceMs };
  }

  /**
   * Copies the image (compiled policy) that is in force in `other` into the slot with the same number of this
   * map. No BPF program may read this map yet.
   */
  copyInForce(other: Slots): void {
    const header = other.#headerInForce();
    if (header === null) return;
    const { base, lines } = header;
    other.#mapped(base, lines, (words) => {
      this.#mapped(base === 0 ? 0 : this.slotLines, lines, (own) => own.set(words));
    });
  }

  /**
   * Puts the slot in force whose number is in force in `other`, with the epoch (activation number) of
   * `other`. The two objects must share the map `program`, or `copyInForce` must have copied the image
   * before.
   */
  adoptInForce(other: Slots): void {
    this.#active.words[ACTIVE.layoutVersion] = LAYOUT_VERSION;
    Atomics.store(this.#active.words, ACTIVE.word, other.#word());
    this.#graceDue = true;
  }

  /**
   * Makes this datapath continue the epochs (activation numbers) of its predecessor. The predecessor enforces
   * its policy until the next call of `flip`. `word` is the active word of the predecessor.
   */
  succeed(word: number): void {
    this.#wordBefore = word;
  }

  /**
   * The time in nanoseconds on the monotonic clock until which a TCP packet that is not a SYN may open a
   * flow. 0: only a SYN opens a TCP flow.
   */
  get pickupUntil(): bigint {
    const [low = 0, high = 0] = this.#active.words.subarray(ACTIVE.pickupUntilNs);
    return (BigInt(high) << 32n) | BigInt(low);
  }

  /**
   * Sets the time in nanoseconds on the monotonic clock until which a TCP packet that is not a SYN may open a
   * flow. So connections continue that began before Weir polices their interface.
   */
  setPickupUntil(monotonicNs: bigint): void {
    this.#active.words[ACTIVE.pickupUntilNs] = Number(monotonicNs & 0xffff_ffffn);
    this.#active.words[ACTIVE.pickupUntilNs + 1] = Number(monotonicNs >> 32n);
  }

  setEventsWanted({ packets, flows }: EventsWanted): void {
    const bits = (packets ? EVENTS_WANTED.packets : 0) | (flows ? EVENTS_WANTED.flows : 0);
    Atomics.store(this.#active.words, ACTIVE.eventsWanted, bits);
  }

  /**
   * Whether the datapath decides translated flows by their real ends (client before SNAT, server after DNAT).
   */
  get translates(): boolean {
    return Atomics.load(this.#active.words, ACTIVE.translates) !== 0;
  }

  /**
   * Tells the datapath whether the node translates addresses (NAT) and the forward judge is attached. The
   * forward judge is the netfilter program for packets whose translation the ingress hook does not know.
   */
  setTranslates(translates: boolean): void {
    Atomics.store(this.#active.words, ACTIVE.translates, translates ? 1 : 0);
  }

  /**
   * The time in nanoseconds on the monotonic clock until which the datapath sends allowed packets directly,
   * without the network stack. Has an effect only if the setting `direct` is on.
   */
  get directUntil(): bigint {
    return Atomics.load(this.#directUntil, 0);
  }

  setDirectUntil(monotonicNs: bigint): void {
    Atomics.store(this.#directUntil, 0, monotonicNs);
  }

  /** Returns whether a CPU may still read the idle slot for a packet. */
  get isGraceDue(): boolean {
    return this.#graceDue;
  }

  /**
   * If a CPU may still read the idle slot for a packet, waits for an RCU grace period, so that the next call
   * of `fill` need not wait.
   */
  awaitIdle(): void {
    if (!this.#graceDue) return;
    awaitGracePeriod();
    this.#graceDue = false;
  }

  /**
   * Makes the next call of `fill` skip its wait for an RCU grace period. The caller itself must have waited
   * for a grace period after the last call of `flip`.
   */
  assumeGrace(): void {
    this.#graceDue = false;
  }

  unmap(): void {
    for (const header of this.#headers) header?.memory.unmap();
    this.#active.unmap();
  }

  /**
   * Calls `use` with cache lines of the map `program`, which are mapped into memory until `use` returns.
   * Mappings that stay would add the size of both slots to the resident memory: 64 MiB for 100,000 rules.
   */
  #mapped<T>(line: number, lines: number, use: (words: Uint32Array) => T): T {
    const { memory, words } = mapLines(this.#programFd, line, lines);
    try {
      return use(words);
    } finally {
      memory.unmap();
    }
  }

  #header(slot: 0 | 1): Uint32Array {
    this.#headers[slot] ??= mapLines(this.#programFd, slot * this.slotLines, 1);
    return this.#headers[slot].words;
  }

  #word(): number {
    return Atomics.load(this.#active.words, ACTIVE.word);
  }

  #headerInForce(): (Enforced & { base: number; lines: number }) | null {
    const word = this.#word();
    if (word === 0) return null;
    const words = this.#header((word & 1) === 0 ? 0 : 1);
    // The first five 32-bit words of an image (a compiled policy) have the same meaning in every layout
    // version. So this code can also read the image of an earlier build.
    const [magic, , lines = 0] = words;
    if (magic !== IMAGE_MAGIC || lines > this.slotLines) return null;
    const base = (word & 1) * this.slotLines;
    return { base, lines, generation: generationIn(words), sinceMs: sinceIn(words) };
  }
}

type MappedLines = { readonly memory: MappedMemory; readonly words: Uint32Array };

/** Maps cache lines of the map `program` into memory, from the page boundary before the first line on. */
function mapLines(fd: number, line: number, lines: number): MappedLines {
  const from = line * LINE_BYTES;
  const before = from % PAGE_BYTES;
  const memory = new MappedMemory('program', fd, before + lines * LINE_BYTES, { offset: from - before });
  return { memory, words: memory.words.subarray(before / 4) };
}

function generationIn(header: Uint32Array): number {
  return u32At(header, HEADER.generationHigh) * 0x1_0000_0000 + u32At(header, HEADER.generationLow);
}

function sinceIn(header: Uint32Array): number | null {
  const high = u32At(header, HEADER.sinceHigh);
  if (u32At(header, HEADER.layoutVersion) !== LAYOUT_VERSION || high === UNSET) return null;
  return high * 0x1_0000_0000 + u32At(header, HEADER.sinceLow);
}
