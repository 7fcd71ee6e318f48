import { createHash } from 'node:crypto';
import { SLOTS, type Slot } from '#dataplane/abi/active-word.js';
import { PATTERN, THIRD_WORDS } from './grant-layout.js';

/**
 * Assigns numbers to hostname patterns, and stores which patterns the compiled policy in each program slot
 * has, in memory that BPF programs read (`bpf/classify/grants.h`). A pattern keeps its number while one of
 * these policies has the pattern; afterwards the pattern is retired. The number of a retired pattern is
 * reused after two steps: no learned address refers to the number any more (`cleared`), and then an RCU grace
 * period has passed (`afterGrace`).
 */
export class PatternTable {
  readonly capacity: number;
  readonly #words: Uint32Array;
  /** The map `third_names`: the names of slot 2; undefined while the datapath has two slots. */
  #third: Uint32Array | undefined;
  /** `#live[number]` is 1 if a hostname pattern in use has this number. */
  readonly #live: Uint8Array;
  readonly #numbers = new Map<string, number>();
  readonly #texts = new Map<number, string>();
  /**
   * Digest of the pattern text → pattern number. Only patterns of the adopted program (which an earlier
   * process put in force) whose text this process does not know yet.
   */
  readonly #adopted = new Map<string, number>();
  readonly #inSlots: [Set<number>, Set<number>, Set<number>] = [new Set(), new Set(), new Set()];
  #retired: number[] = [];
  #resting: number[] = [];
  readonly #free: number[] = [];

  /**
   * `used` are the slots of the programs that an earlier process put in force, or kept as a base, and that
   * this process adopted. The patterns of these programs keep their numbers. No packet may read the other
   * slots.
   */
  constructor(words: Uint32Array, used: readonly Slot[], third?: Uint32Array) {
    this.#words = words;
    this.#third = third;
    this.capacity = words.length / PATTERN.words;
    this.#live = new Uint8Array(this.capacity);
    for (let number = this.capacity - 1; number >= 0; number--) {
      const slots = used.filter((slot) => this.#nameIn(number, slot) !== 0);
      for (const slot of SLOTS) if (!slots.includes(slot)) this.#setName(number, slot, 0);
      if (slots.length > 0) {
        this.#live[number] = 1;
        this.#adopted.set(this.#digestAt(number), number);
        for (const slot of slots) this.#inSlots[slot].add(number);
      } else this.#free.push(number);
    }
    for (const number of this.#free) words.fill(0, number * PATTERN.words, (number + 1) * PATTERN.words);
  }

  /** Uses this memory for the names of slot 2. It must contain the names of the policy in slot 2, if any. */
  useThird(third: Uint32Array | undefined): void {
    this.#third = third;
  }

  /** How many hostname patterns are in use, in the policy of at least one slot. */
  get count(): number {
    return this.#numbers.size + this.#adopted.size;
  }

  get hasRetired(): boolean {
    return this.#retired.length > 0;
  }

  /** Returns false if the number is free, or if no policy uses its hostname pattern any more. */
  isLive(number: number): boolean {
    return this.#live[number] === 1;
  }

  /** Returns the number of a hostname pattern; undefined if the policy of no slot has the pattern. */
  numberOf(text: string): number | undefined {
    return this.#numbers.get(text) ?? (this.#adopted.size > 0 ? this.#adopted.get(hexOf(digestOf(text))) : undefined);
  }

  textOf(number: number): string | undefined {
    return this.#texts.get(number);
  }

  /** Returns how many numbers are missing for these patterns; 0 if enough are free. */
  shortage(texts: readonly string[]): number {
    const unknown = texts.filter((text) => this.numberOf(text) === undefined).length;
    return Math.max(0, unknown - this.#free.length);
  }

  /**
   * Gives numbers to the hostname patterns of a policy, and stores that the policy in this program slot has
   * these patterns. No packet may read the slot, and `shortage` must be 0. Calls `yieldToRequests` between
   * parts of the work, and that function may add learned addresses.
   */
  fill(slot: Slot, texts: readonly string[], yieldToRequests: () => void = () => {}): void {
    for (const [at, text] of texts.filter((each) => !this.#numbers.has(each)).entries()) {
      this.#number(text);
      if (at % AT_ONCE === AT_ONCE - 1) yieldToRequests();
    }
    const before = this.#inSlots[slot];
    for (const number of before) this.#setName(number, slot, 0);
    const now = new Set<number>();
    for (const [name, text] of texts.entries()) {
      const number = this.#numbers.get(text);
      if (number === undefined) continue;
      now.add(number);
      this.#setName(number, slot, name + 1);
    }
    this.#inSlots[slot] = now;
    this.#retire(before, this.#inSlots);
  }

  /**
   * Must be called after a policy was put in force. `used`: the slots in force and with a base. Retires the
   * hostname patterns that only the policies in other slots contain: their numbers may be reused later.
   */
  activated(used: readonly Slot[]): void {
    const kept = used.map((slot) => this.#inSlots[slot]);
    for (const slot of SLOTS) if (!used.includes(slot)) this.#retire(this.#inSlots[slot], kept);
  }

  /**
   * May be called only when no grant refers to a retired pattern (which no policy uses) any more. The numbers
   * of these patterns are then free after the next call of `afterGrace`.
   */
  cleared(): void {
    this.#resting = this.#resting.concat(this.#retired);
    this.#retired = [];
  }

  /**
   * Makes the numbers of the patterns that `cleared` handled available for new patterns. After the last call
   * of `cleared`, the caller must wait for an RCU grace period before it calls this method.
   */
  afterGrace(): void {
    for (const number of this.#resting) this.#free.push(number);
    this.#resting = [];
  }

  /**
   * Gives a number to a hostname pattern to which this process has not yet given one. A pattern of the
   * adopted program keeps the number that an earlier process gave it.
   */
  #number(text: string): void {
    const digest = digestOf(text);
    const hex = hexOf(digest);
    const number = this.#adopted.get(hex) ?? this.#free.pop();
    if (number === undefined) throw new RangeError('assign a number to a hostname pattern: all numbers are in use');
    this.#adopted.delete(hex);
    this.#numbers.set(text, number);
    this.#texts.set(number, text);
    this.#live[number] = 1;
    this.#digestBytes(number).set(digest);
  }

  #retire(numbers: ReadonlySet<number>, kept: readonly ReadonlySet<number>[]): void {
    for (const number of numbers) {
      if (!this.isLive(number) || kept.some((set) => set.has(number))) continue;
      const text = this.#texts.get(number);
      if (text === undefined) this.#adopted.delete(this.#digestAt(number));
      else this.#numbers.delete(text);
      this.#texts.delete(number);
      this.#live[number] = 0;
      this.#retired.push(number);
    }
  }

  #nameIn(number: number, slot: Slot): number {
    if (slot === 2) return this.#third?.[number * THIRD_WORDS] ?? 0;
    return this.#words[number * PATTERN.words + PATTERN.names + slot] ?? 0;
  }

  #setName(number: number, slot: Slot, name: number): void {
    if (slot < 2) this.#words[number * PATTERN.words + PATTERN.names + slot] = name;
    else if (this.#third !== undefined) this.#third[number * THIRD_WORDS] = name;
  }

  #digestAt(number: number): string {
    return hexOf(this.#digestBytes(number));
  }

  #digestBytes(number: number): Uint8Array {
    const at = this.#words.byteOffset + (number * PATTERN.words + PATTERN.digest) * 4;
    return new Uint8Array(this.#words.buffer, at, PATTERN.digestBytes);
  }
}

/** Number of patterns that get a number between two calls of `yieldToRequests`. */
const AT_ONCE = 256;

/**
 * Returns the digest of a pattern's text. The map `patterns` contains this digest instead of the text, so a
 * later process uses it to find the number of a pattern.
 */
function digestOf(text: string): Uint8Array {
  return createHash('sha256').update(text).digest().subarray(0, PATTERN.digestBytes);
}

function hexOf(digest: Uint8Array): string {
  return Buffer.from(digest).toString('hex');
}
