import { digestOf } from './digest.js';
import { PATTERN } from './grant-layout.js';
import { Ledger } from './grant-ledger.js';
import { PatternIndex } from './pattern-index.js';

export type Slot = 0 | 1;

/**
 * Numbers of the patterns in use, and their names in the programs of both slots, in memory that the kernel reads
 * (`bpf/classify/grants.h`). A pattern keeps its number for as long as a program has it. One that no program has any more is
 * retired at once; its number goes to another only when no grant has it (`cleared`) and nobody reads it (`afterGrace`).
 */
export class PatternTable {
  readonly capacity: number;
  readonly #words: Uint32Array;
  /** Read by whoever grants. */
  readonly #live: Uint8Array;
  readonly #incarnations: Uint32Array;
  readonly #index: PatternIndex;
  readonly #numbers = new Map<string, number>();
  readonly #texts = new Map<number, string>();
  /** How many patterns of the program that was found in force no program has said the text of yet. */
  #adopted = 0;
  readonly #inSlots: [Set<number>, Set<number>] = [new Set(), new Set()];
  #retired: number[] = [];
  #resting: number[] = [];
  readonly #free: number[] = [];

  /** `inForce` is the slot of a program that was found in force: its patterns stay. Nobody may read the other slot. */
  constructor(
    words: Uint32Array,
    inForce: Slot | undefined,
    ledger = new Ledger(0, words.length / PATTERN.words),
    /** Keeps away whoever grants meanwhile. */
    private readonly alone: (change: () => void) => void = (change) => change(),
  ) {
    this.#words = words;
    this.capacity = words.length / PATTERN.words;
    this.#live = ledger.live;
    this.#incarnations = ledger.incarnations;
    this.#index = new PatternIndex(ledger.places, words);
    for (let number = this.capacity - 1; number >= 0; number--) {
      if (inForce !== undefined && words[number * PATTERN.words + PATTERN.names + inForce] !== 0) {
        words[number * PATTERN.words + PATTERN.names + other(inForce)] = 0;
        this.#live[number] = 1;
        this.#index.add(number);
        this.#adopted++;
        this.#inSlots[inForce].add(number);
      } else this.#free.push(number);
    }
    for (const number of this.#free) words.fill(0, number * PATTERN.words, (number + 1) * PATTERN.words);
  }

  /** Patterns that may be granted. */
  get count(): number {
    return this.#numbers.size + this.#adopted;
  }

  get hasRetired(): boolean {
    return this.#retired.length > 0;
  }

  /** False for a number that a pattern had and has no longer. */
  isLive(number: number): boolean {
    return this.#live[number] === 1;
  }

  /** The number of a pattern that a program has. */
  numberOf(text: string): number | undefined {
    return this.#numbers.get(text) ?? (this.#adopted > 0 ? this.#index.find(digestOf(text)) : undefined);
  }

  textOf(number: number): string | undefined {
    return this.#texts.get(number);
  }

  /** How many numbers are missing for these patterns. */
  shortage(texts: readonly string[]): number {
    const unknown = texts.filter((text) => this.numberOf(text) === undefined).length;
    return Math.max(0, unknown - this.#free.length);
  }

  /** Writes the names of a program into a slot that nobody reads. There must be no shortage. */
  fill(slot: Slot, texts: readonly string[]): void {
    this.#number(texts.filter((text) => !this.#numbers.has(text)));
    const before = this.#inSlots[slot];
    for (const number of before) this.#words[number * PATTERN.words + PATTERN.names + slot] = 0;
    const now = new Set<number>();
    for (const [name, text] of texts.entries()) {
      const number = this.#numbers.get(text);
      if (number === undefined) continue;
      now.add(number);
      this.#words[number * PATTERN.words + PATTERN.names + slot] = name + 1;
    }
    this.#inSlots[slot] = now;
    this.#retire(before, [now, this.#inSlots[other(slot)]]);
  }

  /** From now on the program in this slot is in force. */
  activated(slot: Slot): void {
    this.#retire(this.#inSlots[other(slot)], [this.#inSlots[slot]]);
  }

  /** No grant has the number of a retired pattern any more. */
  cleared(): void {
    this.#resting = this.#resting.concat(this.#retired);
    this.#retired = [];
  }

  /** After a grace period: numbers that were cleared before it are free. */
  afterGrace(): void {
    for (const number of this.#resting) this.#free.push(number);
    this.#resting = [];
  }

  /** Gives numbers to patterns that have none, or the one that they had before the process began. */
  #number(texts: readonly string[]): void {
    for (const part of partsOf(texts)) {
      const digests = part.map(digestOf);
      this.alone(() => {
        for (const [at, digest] of digests.entries()) this.#take(part[at] ?? '', digest);
      });
    }
  }

  #take(text: string, digest: Uint32Array): void {
    const adopted = this.#index.find(digest);
    const number = adopted ?? this.#free.pop();
    if (number === undefined) throw new RangeError('no number is free for a pattern');
    this.#numbers.set(text, number);
    this.#texts.set(number, text);
    if (adopted !== undefined) {
      this.#adopted--;
      return;
    }
    this.#words.set(digest, number * PATTERN.words + PATTERN.digest);
    this.#index.add(number);
    this.#live[number] = 1;
  }

  #retire(numbers: ReadonlySet<number>, kept: readonly ReadonlySet<number>[]): void {
    const lost = [...numbers].filter((number) => this.isLive(number) && !kept.some((set) => set.has(number)));
    for (const part of partsOf(lost)) {
      // Whoever grants after this does not grant them, so that what is cleared then is all that there is.
      this.alone(() => {
        for (const number of part) {
          this.#live[number] = 0;
          this.#incarnations[number] = (this.#incarnations[number] ?? 0) + 1;
          this.#index.remove(number);
        }
      });
      for (const number of part) this.#forget(number);
      this.#retired.push(...part);
    }
  }

  #forget(number: number): void {
    const text = this.#texts.get(number);
    if (text === undefined) this.#adopted--;
    else this.#numbers.delete(text);
    this.#texts.delete(number);
  }
}

/** How many patterns are numbered, or retired, while nobody else grants. */
const AT_ONCE = 256;

function partsOf<T>(all: readonly T[]): T[][] {
  return Array.from({ length: Math.ceil(all.length / AT_ONCE) }, (_, part) =>
    all.slice(part * AT_ONCE, (part + 1) * AT_ONCE),
  );
}

function other(slot: Slot): Slot {
  return slot === 0 ? 1 : 0;
}
