import { createHash } from 'node:crypto';
import { CapacityExceeded, type EventsWanted } from '#contracts/datapath.js';
import { EVENTS_WANTED, IMAGE_MAGIC, LAYOUT_VERSION, LINE_BYTES, LINE_WORDS } from '#contracts/datapath-numbers.js';
import { HEADER, type Image } from '#dataplane/image/program-image.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { MappedMemory } from '#libc/mapped-memory.js';

const MAX_EPOCH = 0x7fff_ffff;
/** Offsets of `struct active`, in 32-bit words. */
export const ACTIVE = {
  word: 0,
  layoutVersion: 1,
  pickupUntilNs: 2,
  eventsWanted: 4,
  directUntilNs: 6,
  bytes: 32,
} as const;

/**
 * The two slots of the program map, and the active word, which selects the slot in force and counts flips in
 * its epoch. `stageProgram` fills the idle slot, `Prover` proves it, and `flip` stores the active word.
 */
export class Slots {
  readonly #program: MappedMemory;
  readonly #active: MappedMemory;
  readonly #directUntil: BigUint64Array;
  #staged = false;
  /**
   * The active word of the datapath that this one takes over from: epochs continue from there, and its slot
   * is not overwritten.
   */
  #wordBefore = 0;
  /**
   * A packet may still be reading the idle slot: true after a flip, and at the start, because an earlier
   * process may have flipped.
   */
  #graceDue = true;

  constructor(
    fds: { readonly program: number; readonly active: number },
    readonly slotLines: number,
  ) {
    this.#program = new MappedMemory('program', fds.program, 2 * slotLines * LINE_BYTES);
    this.#active = new MappedMemory('active', fds.active, ACTIVE.bytes);
    this.#directUntil = new BigUint64Array(this.#active.buffer, ACTIVE.directUntilNs * 4, 1);
  }

  /** 0 if nothing was ever activated. */
  get epoch(): number {
    return this.#word() >>> 1;
  }

  /** The epoch of the next activation. */
  get nextEpoch(): number {
    const before = (this.#word() || this.#wordBefore) >>> 1;
    return before === MAX_EPOCH ? 1 : before + 1;
  }

  /** Undefined before the first activation. */
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

  /** The slot that the next fill writes to. */
  get idleSlot(): 0 | 1 {
    return ((this.#word() || this.#wordBefore) & 1) === 0 ? 1 : 0;
  }

  /** Generation, size and digest of the image in force. */
  inForce(): { readonly generation: number; readonly lines: number; readonly imageSha256: string } | null {
    const header = this.#headerInForce();
    if (header === null) return null;
    const { base, lines, generation } = header;
    const first = this.#program.words.slice(base * LINE_WORDS, (base + 1) * LINE_WORDS);
    first[HEADER.generationLow] = 0;
    first[HEADER.generationHigh] = 0;
    const rest = this.#program.words.subarray((base + 1) * LINE_WORDS, (base + lines) * LINE_WORDS);
    return { generation, lines, imageSha256: sha256(first, rest) };
  }

  sizeInForce(): { readonly generation: number; readonly lines: number } {
    const header = this.#headerInForce();
    return header === null ? { generation: 0, lines: 0 } : { generation: header.generation, lines: header.lines };
  }

  /** Fills the idle slot, after all packets that may still read it are done. */
  fill(image: Image, generation: number): void {
    if (image.lines > this.slotLines) throw new CapacityExceeded('program', image.lines, this.slotLines);
    this.#staged = false;
    this.settle();
    const base = this.idleSlot * this.slotLines * LINE_WORDS;
    const words = this.#program.words;
    words.set(image.words, base);
    words[base + HEADER.generationLow] = generation % 0x1_0000_0000;
    words[base + HEADER.generationHigh] = Math.floor(generation / 0x1_0000_0000);
    this.#staged = true;
  }

  unstage(): void {
    this.#staged = false;
  }

  /** Puts the staged slot in force by one store. Returns its epoch. */
  flip(): number {
    if (!this.#staged) throw new Error('nothing is staged');
    const epoch = this.nextEpoch;
    this.#active.words[ACTIVE.layoutVersion] = LAYOUT_VERSION;
    Atomics.store(this.#active.words, ACTIVE.word, epoch * 2 + this.idleSlot);
    this.#staged = false;
    this.#graceDue = true;
    return epoch;
  }

  /** Copies the image in force of `other` into the same slot of this map, which no program reads yet. */
  copyInForce(other: Slots): void {
    const header = other.#headerInForce();
    if (header === null) return;
    const { base, lines } = header;
    const words = other.#program.words.subarray(base * LINE_WORDS, (base + lines) * LINE_WORDS);
    this.#program.words.set(words, (base === 0 ? 0 : this.slotLines) * LINE_WORDS);
  }

  /**
   * Puts in force the slot that is in force in `other`, with the same epoch. The program map is shared or was
   * copied before.
   */
  adoptInForce(other: Slots): void {
    this.#active.words[ACTIVE.layoutVersion] = LAYOUT_VERSION;
    Atomics.store(this.#active.words, ACTIVE.word, other.#word());
    this.#graceDue = true;
  }

  /**
   * Continues the epochs of another datapath, which enforces until the next flip. `word` is its active word.
   */
  succeed(word: number): void {
    this.#wordBefore = word;
  }

  /** 0: TCP flows are not picked up. */
  get pickupUntil(): bigint {
    const [low = 0, high = 0] = this.#active.words.subarray(ACTIVE.pickupUntilNs);
    return (BigInt(high) << 32n) | BigInt(low);
  }

  /** Until this time TCP packets without a flow are classified as if they opened one. */
  setPickupUntil(monotonicNs: bigint): void {
    this.#active.words[ACTIVE.pickupUntilNs] = Number(monotonicNs & 0xffff_ffffn);
    this.#active.words[ACTIVE.pickupUntilNs + 1] = Number(monotonicNs >> 32n);
  }

  /** Selects the events that the kernel sends. */
  setEventsWanted({ packets, flows }: EventsWanted): void {
    const bits = (packets ? EVENTS_WANTED.packets : 0) | (flows ? EVENTS_WANTED.flows : 0);
    Atomics.store(this.#active.words, ACTIVE.eventsWanted, bits);
  }

  /** Until this time on the monotonic clock allowed packets are sent at once, if the program supports it. */
  get directUntil(): bigint {
    return Atomics.load(this.#directUntil, 0);
  }

  setDirectUntil(monotonicNs: bigint): void {
    Atomics.store(this.#directUntil, 0, monotonicNs);
  }

  /** Whether a packet may still be reading the idle slot. */
  get isGraceDue(): boolean {
    return this.#graceDue;
  }

  /** Waits until no packet reads the idle slot, so that the next fill need not wait. */
  settle(): void {
    if (!this.#graceDue) return;
    awaitGracePeriod();
    this.#graceDue = false;
  }

  /** Skips the wait of the next fill. The caller must have waited for a grace period by other means. */
  assumeGrace(): void {
    this.#graceDue = false;
  }

  unmap(): void {
    this.#program.unmap();
    this.#active.unmap();
  }

  #word(): number {
    return Atomics.load(this.#active.words, ACTIVE.word);
  }

  #headerInForce(): { base: number; lines: number; generation: number } | null {
    const word = this.#word();
    if (word === 0) return null;
    const base = (word & 1) * this.slotLines;
    // These five words have the same place in every layout.
    const [magic, , lines = 0, low = 0, high = 0] = this.#program.words.subarray(base * LINE_WORDS);
    if (magic !== IMAGE_MAGIC || lines > this.slotLines) return null;
    return { base, lines, generation: high * 0x1_0000_0000 + low };
  }
}

function sha256(...parts: readonly Uint32Array[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
  return hash.digest('hex');
}
