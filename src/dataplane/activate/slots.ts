import { u32At } from '#arrays/read.js';
import { CapacityExceeded, type Enforced, type EventsWanted, type Flipped } from '#contracts/datapath/datapath.js';
import {
  EVENTS_WANTED,
  IMAGE_MAGIC,
  LAYOUT_VERSION,
  LINE_BYTES,
  LINE_WORDS,
} from '#contracts/datapath/datapath-numbers.js';
import type { KeptBase, Unconfirmed } from '#contracts/datapath/unconfirmed.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { epochAfter, epochOf, SLOT_COUNT, SLOTS, type Slot, slotOf, wordOf } from '#dataplane/abi/active-word.js';
import { UNSET } from '#dataplane/image/cache-lines.js';
import { HEADER, type Image } from '#dataplane/image/program-image.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { MappedMemory, PAGE_BYTES } from '#libc/mapped-memory.js';
import { sha256 } from './image-digest.js';
import type { Deadline, RevertTimer } from './revert-timer.js';

/**
 * The difference between the epochs (activation numbers) before and after a revert to the base (last
 * confirmed policy). It differs from the difference in `flip`; see REVERT_EPOCHS of `bpf/revert.h`.
 */
const REVERT_EPOCHS = 2;
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
  ipv6DirectUntilNs: 8,
  bytes: 40,
} as const;
/** The bits of the field `translates`, as in `enum translates` of `bpf/weir.h`. */
export const TRANSLATES: Readonly<Record<Family, number>> = { ipv4: 1, ipv6: 2 };

/**
 * The base of an unconfirmed policy: a program slot with the last confirmed policy, and the deadline at which
 * the kernel puts this slot in force again. `generation`: the generation that the base gets then.
 * `isInForce`: the kernel has already done so.
 */
type Base = Deadline & { readonly generation: number; readonly isInForce: boolean };

/**
 * A bit of the layout version in the map `active` while a program slot keeps a base (last confirmed policy).
 * A build that does not know bases then finds an unknown layout, and makes new maps. In the same maps, it
 * would overwrite the base before the deadline, and the kernel would undo its activations after the deadline.
 */
const WITH_BASE = 0x100;

/** Thrown if an unconfirmed policy cannot be put in force, because it could not be reverted in time. */
class NoBase extends Error {
  readonly code = 'no_base';
  override readonly name = 'NoBase';
}

/**
 * The slots of the map `program`, each for one compiled policy, and the active word in the map `active`. The
 * active word selects the slot in force, and contains the epoch, which counts the activations of policies.
 * `fill` fills an idle program slot, `Prover` verifies the filled slot, and `flip` puts that slot in force.
 * While a policy is unconfirmed, one slot keeps its base; then a third slot is needed to fill one.
 */
export class Slots {
  readonly #programFd: number;
  readonly #active: MappedMemory;
  /** The first 64 bytes of each policy slot, mapped by mmap; undefined until the first use of the slot. */
  readonly #headers: [MappedLines?, MappedLines?, MappedLines?] = [];
  readonly #directUntil: Readonly<Record<Family, BigUint64Array>>;
  /** The program slot with a compiled policy that `fill` has written and that is not in force yet. */
  #staged: Slot | undefined;
  /**
   * The active word (epoch and program slot) at the last call of `prepareFlip`. Undefined after the next call
   * of `flip`.
   */
  #flipsFrom: number | undefined;
  /**
   * The active word (epoch and program slot) that this process knows. The kernel changes the word when it
   * reverts to a base.
   */
  #knownWord: number;
  /**
   * The active word of the predecessor, the datapath that this process takes over from; 0 if there is no
   * predecessor. The epochs continue from that word. `fill` does not overwrite the program slot number that
   * the word selects.
   */
  #wordBefore = 0;
  /** The deadline of the unconfirmed policy of the earlier process, from which this process takes over. */
  #deadlineBefore: Deadline | null = null;
  /**
   * True if a CPU may still read the idle program slot for a packet. True after each call of `flip`. Also
   * true when this object is created, because an earlier process may have put a policy in force just before.
   */
  #graceDue = true;

  constructor(
    fds: { readonly program: number; readonly active: number },
    readonly slotLines: number,
    /** The number of program slots in the map `program`. */
    readonly count: number = SLOT_COUNT.usual,
    /** The timer of the deadline; undefined if this object does not change the policy in force. */
    private readonly timer?: RevertTimer,
  ) {
    this.#programFd = fds.program;
    this.#active = new MappedMemory('active', fds.active, ACTIVE.bytes);
    this.#knownWord = this.#word();
    const numberAt = (word: number): BigUint64Array => new BigUint64Array(this.#active.buffer, word * 4, 1);
    this.#directUntil = { ipv4: numberAt(ACTIVE.directUntilNs), ipv6: numberAt(ACTIVE.ipv6DirectUntilNs) };
  }

  /** The epoch (activation number) of the policy in force; 0 if no policy was activated in this map yet. */
  get epoch(): number {
    return epochOf(this.#word());
  }

  /** The epoch (activation number) of the next policy that `flip` puts in force. */
  get nextEpoch(): number {
    return epochAfter(epochOf(this.#word() || this.#wordBefore), 1);
  }

  /**
   * The number of the program slot in force. Before this datapath has put a policy in force, it is the slot
   * number that the predecessor has in force; undefined if there is no predecessor.
   */
  get slotInForce(): Slot | undefined {
    const word = this.#word() || this.#wordBefore;
    return word === 0 ? undefined : slotOf(word);
  }

  /**
   * The program slots that must not be overwritten: the slot in force, and the slot that keeps the base (last
   * confirmed policy).
   */
  get usedSlots(): readonly Slot[] {
    const { slotInForce } = this;
    const deadline = this.timer?.read() ?? (this.#word() === 0 ? this.#deadlineBefore : null);
    return SLOTS.filter((slot) => slot === slotInForce || slot === deadline?.slot);
  }

  /**
   * Returns the base (last confirmed policy) of the unconfirmed policy that has this deadline, by default
   * that of this datapath. Returns null if there is none.
   */
  keptBase(deadline: Deadline | null = this.timer?.read() ?? null): KeptBase | null {
    const base = this.#baseAt(deadline);
    return base && { generation: base.generation, atNs: base.atNs, hasReverted: base.isInForce };
  }

  get #base(): Base | null {
    return this.#baseAt(this.timer?.read() ?? null);
  }

  #baseAt(deadline: Deadline | null): Base | null {
    if (deadline === null) return null;
    const { slot } = deadline;
    return { ...deadline, generation: generationIn(this.#header(slot)), isInForce: slot === this.slotInForce };
  }

  get layoutVersion(): number {
    return (this.#active.words[ACTIVE.layoutVersion] ?? 0) & ~WITH_BASE;
  }

  #setLayout({ hasBase }: { readonly hasBase: boolean }): void {
    this.#active.words[ACTIVE.layoutVersion] = LAYOUT_VERSION | (hasBase ? WITH_BASE : 0);
  }

  get staged(): boolean {
    return this.#staged !== undefined;
  }

  /**
   * The unused program slot that the next call of `fill` writes to. Throws if there is none; see
   * `SLOT_COUNT`.
   */
  get idleSlot(): Slot {
    const { usedSlots } = this;
    const idle = SLOTS.find((slot) => slot < this.count && !usedSlots.includes(slot));
    if (idle === undefined) throw new Error('find an idle program slot: all slots are in use');
    return idle;
  }

  /** The program slot that `fill` has written; before the first call, the one that it would write. */
  get filledSlot(): Slot {
    return this.#staged ?? this.idleSlot;
  }

  /**
   * Returns the generation in force with its time, the size in cache lines and the SHA-256 digest of the
   * image in force (a compiled policy as the BPF programs read it). The digest depends neither on the
   * generation nor on the time. Returns null if no image is in force.
   */
  inForce(): (Enforced & { readonly lines: number; readonly imageSha256: string }) | null {
    const header = this.#headerInForce();
    if (header === null) return null;
    const { firstLine, lines, generation, sinceMs } = header;
    const imageSha256 = this.#mapped(firstLine, lines, (words) => {
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
   * Writes an image (a compiled policy as the BPF programs read it) to the idle program slot. First waits
   * until no CPU reads that slot for a packet. Throws `CapacityExceeded` if the image is larger than a slot.
   */
  fill(image: Image, generation: number): void {
    if (image.lines > this.slotLines) throw new CapacityExceeded('program', image.lines, this.slotLines);
    this.#staged = undefined;
    // Choose the program slot before the RCU grace period. If the kernel reverts to the last confirmed policy
    // meanwhile, packets may still read the slot that becomes unused by that.
    const slot = this.idleSlot;
    this.awaitIdle();
    // Map all headers now: a mapping can fail. `flip` and `enforced` use the headers after the policy is
    // committed to the store, and must not fail then.
    for (const each of SLOTS.slice(0, this.count)) this.#header(each);
    this.#mapped(slot * this.slotLines, image.lines, (words) => {
      words.set(image.words);
      setGeneration(words, generation);
    });
    this.#staged = slot;
  }

  unstage(): void {
    this.#staged = undefined;
  }

  /**
   * Throws `NoBase` if the kernel cannot revert this unconfirmed policy in time: its deadline has passed, or
   * no program slot has its base.
   */
  requireBase({ before, reverts, atNs }: Unconfirmed): void {
    const base = this.#base;
    if (process.hrtime.bigint() >= atNs) throw new NoBase('the deadline for the confirmation of the policy has passed');
    if (base?.generation === reverts) {
      if (base.isInForce) throw new NoBase('the kernel has reverted the unconfirmed policy');
    } else if (this.#word() === 0 || this.enforced()?.generation !== before)
      throw new NoBase('the kernel no longer has the earlier policy, to which it would have to revert');
  }

  /**
   * Must be called before `flip`. With `unconfirmed`, makes the program slot in force the base, and sets the
   * deadline at which the kernel puts it in force again. If there is a base already, it stays the base, and
   * the deadline changes only for another unconfirmed policy. With null, removes the base and its deadline.
   */
  prepareFlip(unconfirmed: Unconfirmed | null): void {
    if (unconfirmed === null) this.releaseBase();
    else this.#keepBase(unconfirmed);
    this.#flipsFrom = this.#word();
  }

  #keepBase(unconfirmed: Unconfirmed): void {
    const base = this.#base;
    if (base?.generation === unconfirmed.reverts) {
      if (base.isInForce) throw new NoBase('the kernel has reverted the unconfirmed policy');
      return;
    }
    if (process.hrtime.bigint() >= unconfirmed.atNs)
      throw new NoBase('the deadline for the confirmation of the policy has passed');
    const slot = base?.slot ?? this.slotInForce;
    if (this.timer === undefined || slot === undefined || this.#word() === 0)
      throw new NoBase('no policy is in force yet, so the kernel could not revert to it');
    this.#setLayout({ hasBase: true });
    const words = this.#header(slot);
    const leftMs = Number(unconfirmed.atNs - process.hrtime.bigint()) / 1e6;
    setGeneration(words, unconfirmed.reverts);
    setSince(words, Date.now() + Math.round(leftMs));
    this.timer.set(unconfirmed.atNs, slot);
  }

  /**
   * Removes the base (last confirmed policy), so that the kernel does not revert the policy in force any
   * more.
   */
  releaseBase(): void {
    if (this.timer === undefined || this.timer.read() === null) return;
    this.timer.stop();
    if (this.#word() !== 0) this.#setLayout({ hasBase: false });
  }

  /**
   * Puts the base (last confirmed policy) in force, as the kernel does at the deadline. Does nothing if it is
   * in force already.
   */
  revert(): void {
    const base = this.#base;
    if (base === null) return;
    const { words } = this.#active;
    for (let word = this.#word(); slotOf(word) !== base.slot; word = this.#word()) {
      const reverted = wordOf(epochAfter(epochOf(word), REVERT_EPOCHS), base.slot);
      if (Atomics.compareExchange(words, ACTIVE.word, word, reverted) !== word) continue;
      setSince(this.#header(base.slot), Date.now());
    }
  }

  /**
   * Returns whether a base has come in force since the last call of this method or of `flip`. The caller must
   * call it before it uses an idle program slot: packets may still read the slot that was in force.
   */
  noticeRevert(): boolean {
    const word = this.#word();
    if (word === this.#knownWord) return false;
    this.#knownWord = word;
    this.#graceDue = true;
    return true;
  }

  /**
   * Puts the filled program slot in force by one compare-and-exchange of the active word. Throws `NoBase` if
   * the kernel has reverted an unconfirmed policy since `prepareFlip`. Returns the new epoch, and the time
   * since when the kernel enforces the generation. A generation that is already in force, for example after a
   * restart of the process, keeps its time. `before` is the generation that the kernel enforced until now,
   * also if it is in force in the predecessor. Maps no memory, because the kernel can refuse a mapping, and
   * at this point the policy is already committed to the store.
   */
  flip(before: Enforced | null = this.enforced()): Omit<Flipped, 'uncompiled'> {
    const slot = this.#staged;
    if (slot === undefined) throw new Error('no compiled policy is staged: call `stage` first');
    const word = this.#flipsFrom ?? this.#word();
    this.#flipsFrom = undefined;
    const epoch = epochAfter(epochOf(word || this.#wordBefore), 1);
    const words = this.#header(slot);
    const sinceMs = (before?.generation === generationIn(words) ? before.sinceMs : null) ?? Date.now();
    setSince(words, sinceMs);
    this.#setLayout({ hasBase: this.timer != null && this.timer.read() !== null });
    const flipped = wordOf(epoch, slot);
    // Only the kernel changes the word meanwhile, at the deadline of an unconfirmed policy.
    if (Atomics.compareExchange(this.#active.words, ACTIVE.word, word, flipped) !== word)
      throw new NoBase('the kernel has reverted the unconfirmed policy');
    this.#knownWord = flipped;
    this.#staged = undefined;
    this.#graceDue = true;
    return { epoch, sinceMs };
  }

  /**
   * Copies the images (compiled policies) that `other` has in force and keeps as a base into the program
   * slots with the same numbers of this map. No BPF program may read this map yet.
   */
  copyUsed(other: Slots): void {
    if (other.#word() === 0) return;
    for (const slot of other.usedSlots) {
      const lines = other.#linesIn(slot);
      if (lines === null) continue;
      other.#mapped(slot * other.slotLines, lines, (words) => {
        this.#mapped(slot * this.slotLines, lines, (own) => own.set(words));
      });
    }
  }

  /**
   * Puts the program slot in force whose number is in force in `other`, with the epoch (activation number) of
   * `other`. The two objects must share the map `program`. `deadline`: that of `other`, so that the kernel
   * reverts an unconfirmed policy of this datapath too.
   */
  adoptInForce(other: Slots, deadline: Deadline | null): void {
    if (deadline !== null && deadline.slot !== other.slotInForce) this.timer?.set(deadline.atNs, deadline.slot);
    this.#setLayout({ hasBase: deadline !== null });
    const word = other.#word();
    Atomics.store(this.#active.words, ACTIVE.word, word);
    this.#knownWord = word;
    this.#graceDue = true;
  }

  /**
   * Makes this datapath continue the epochs (activation numbers) of its predecessor. The predecessor enforces
   * its policy until the next call of `flip`. `word` is the active word of the predecessor, and `deadline`
   * that of its unconfirmed policy. The two datapaths may share columns of the maps `patterns` and
   * `member_sets`.
   */
  succeed(word: number, deadline: Deadline | null): void {
    this.#wordBefore = word;
    this.#deadlineBefore = deadline;
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
   * Returns whether the datapath decides translated flows of a family by their real ends (client before SNAT,
   * server after DNAT).
   */
  translates(family: Family): boolean {
    return (Atomics.load(this.#active.words, ACTIVE.translates) & TRANSLATES[family]) !== 0;
  }

  /**
   * Tells the datapath whether the node translates addresses of a family (NAT). For IPv4, the forward judge
   * must be attached: the netfilter program for packets whose translation the ingress hook does not know.
   */
  setTranslates(family: Family, translates: boolean): void {
    if (translates) Atomics.or(this.#active.words, ACTIVE.translates, TRANSLATES[family]);
    else Atomics.and(this.#active.words, ACTIVE.translates, ~TRANSLATES[family]);
  }

  /**
   * Returns the time in nanoseconds on the monotonic clock until which the datapath sends allowed packets of
   * a family directly, without the network stack. Has an effect only if the setting `direct` is on.
   */
  directUntil(family: Family): bigint {
    return Atomics.load(this.#directUntil[family], 0);
  }

  setDirectUntil(family: Family, monotonicNs: bigint): void {
    Atomics.store(this.#directUntil[family], 0, monotonicNs);
  }

  /** Returns whether a CPU may still read the idle program slot for a packet. */
  get isGraceDue(): boolean {
    return this.#graceDue || this.#word() !== this.#knownWord;
  }

  /**
   * If a CPU may still read the idle program slot for a packet, waits for an RCU grace period, so that the
   * next call of `fill` need not wait.
   */
  awaitIdle(): void {
    if (!this.isGraceDue) return;
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
   * Mappings that stay would add the size of both program slots to the resident memory: 64 MiB for 100,000
   * rules.
   */
  #mapped<T>(line: number, lines: number, use: (words: Uint32Array) => T): T {
    const { memory, words } = mapLines(this.#programFd, line, lines);
    try {
      return use(words);
    } finally {
      memory.unmap();
    }
  }

  #header(slot: Slot): Uint32Array {
    this.#headers[slot] ??= mapLines(this.#programFd, slot * this.slotLines, 1);
    return this.#headers[slot].words;
  }

  #word(): number {
    return Atomics.load(this.#active.words, ACTIVE.word);
  }

  #headerInForce(): (Enforced & { firstLine: number; lines: number }) | null {
    const word = this.#word();
    if (word === 0) return null;
    const slot = slotOf(word);
    const lines = this.#linesIn(slot);
    if (lines === null) return null;
    const words = this.#header(slot);
    return { firstLine: slot * this.slotLines, lines, generation: generationIn(words), sinceMs: sinceIn(words) };
  }

  /** Returns the size in cache lines of the image in a program slot; null if the slot has no valid image. */
  #linesIn(slot: Slot): number | null {
    // The first five 32-bit words of an image (a compiled policy) have the same meaning in every layout
    // version. So this code can also read the image of an earlier build.
    const [magic, , lines = 0] = this.#header(slot);
    return magic !== IMAGE_MAGIC || lines > this.slotLines ? null : lines;
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

function setGeneration(header: Uint32Array, generation: number): void {
  header[HEADER.generationLow] = generation % 0x1_0000_0000;
  header[HEADER.generationHigh] = Math.floor(generation / 0x1_0000_0000);
}

function setSince(header: Uint32Array, sinceMs: number): void {
  header[HEADER.sinceLow] = sinceMs % 0x1_0000_0000;
  header[HEADER.sinceHigh] = Math.floor(sinceMs / 0x1_0000_0000);
}

function sinceIn(header: Uint32Array): number | null {
  const high = u32At(header, HEADER.sinceHigh);
  if (u32At(header, HEADER.layoutVersion) !== LAYOUT_VERSION || high === UNSET) return null;
  return high * 0x1_0000_0000 + u32At(header, HEADER.sinceLow);
}
