import { u32At, u64At } from '#arrays/read.js';
import { CapacityExceeded } from '#contracts/datapath/datapath.js';
import type { RuleNames } from '#contracts/policy/rule-names.js';
import { SLOT_COUNT, type Slot } from '#dataplane/abi/active-word.js';
import { HIT_BYTES, HIT_OFFSETS, HIT_REF_BYTES, HIT_REF_OFFSETS } from '#dataplane/abi/hit.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { HitIndex } from './hit-index.js';

const WORDS = HIT_BYTES / 4;
const LOW = HIT_OFFSETS.identity / 4;
const LAST = HIT_OFFSETS.last_ns / 4;
const REF_WORDS = HIT_REF_BYTES / 4;
const REF_HIT = HIT_REF_OFFSETS.hit / 4;
const REF_CHECK = HIT_REF_OFFSETS.check / 4;
/**
 * When the map `hits` is full, `fill` frees one eighth of the entries together, because the search for
 * entries to free reads the whole map.
 */
const FREED_SHARE = 8;
const NOTHING = new Uint32Array(0);

/**
 * `entries`: for each rank (place of a rule or default in a compiled policy), the index in the map `hits`
 * where its packets are counted. The index is 0 if the rank has no entry yet; `Hits.fill` then assigns an
 * entry. `missing` is the number of used ranks without an entry.
 */
export type Placement = { readonly ruleNames: RuleNames; readonly entries: Uint32Array; readonly missing: number };

/**
 * Assigns entries of the map `hits` to rules, and writes the assignment into the map `rank_hits`. The two
 * maps contain the whole state, so that a later process can continue with them. The identity of a rule keeps
 * its entry when the rule leaves the policy, until the map is full.
 *
 * Entry 0 counts no packets; its `last_ns` is the time when counting began. In any other entry without
 * packets, `last_ns` is the time when the entry was assigned.
 */
export class Hits {
  readonly capacity: number;
  readonly rankCapacity: number;
  readonly #hits: MappedMemory;
  readonly #ranks: MappedMemory;
  readonly #words: Uint32Array;
  readonly #wide: BigUint64Array;
  #index: HitIndex;

  constructor(fds: { readonly hits: number; readonly rankHits: number }, slotCount: number = SLOT_COUNT.usual) {
    this.capacity = mapShape(fds.hits).maxEntries;
    this.rankCapacity = mapShape(fds.rankHits).maxEntries / slotCount;
    this.#hits = new MappedMemory('hits', fds.hits, this.capacity * HIT_BYTES);
    this.#ranks = new MappedMemory('rank_hits', fds.rankHits, slotCount * this.rankCapacity * HIT_REF_BYTES);
    this.#words = this.#hits.words;
    this.#wide = new BigUint64Array(this.#words.buffer);
    this.#index = new HitIndex(this.#words, this.capacity);
    if (this.lastNs(0) === 0n) this.#wide[HIT_OFFSETS.last_ns / 8] = process.hrtime.bigint();
  }

  /** The time when counting began, in nanoseconds on the monotonic clock. */
  get sinceNs(): bigint {
    return this.lastNs(0);
  }

  /** The number of entries of `hits` that are assigned to a rule or default. */
  get count(): number {
    return this.#index.count;
  }

  /** The low 32 bits of the identity of the rule whose packets an entry counts; 0 if the entry is free. */
  check(entry: number): number {
    return u32At(this.#words, entry * WORDS + LOW);
  }

  packets(entry: number): bigint {
    return u64At(this.#wide, (entry * HIT_BYTES + HIT_OFFSETS.packets) / 8);
  }

  bytes(entry: number): bigint {
    return u64At(this.#wide, (entry * HIT_BYTES + HIT_OFFSETS.bytes) / 8);
  }

  lastNs(entry: number): bigint {
    return u64At(this.#wide, (entry * HIT_BYTES + HIT_OFFSETS.last_ns) / 8);
  }

  /**
   * Adds packets to the entry of the rule with this identity. The addition is atomic, because the datapath
   * may add to the same entry meanwhile. Returns false if the rule has no entry.
   */
  add(low: number, high: number, packets: number, lastNs: bigint): boolean {
    const entry = this.#index.find(low, high);
    if (entry === 0) return false;
    const at = (entry * HIT_BYTES) / 8;
    Atomics.add(this.#wide, at + HIT_OFFSETS.packets / 8, BigInt(packets));
    if (this.lastNs(entry) < lastNs) this.#wide[at + HIT_OFFSETS.last_ns / 8] = lastNs;
    return true;
  }

  /**
   * Finds the entries of `hits` for the rules and defaults with these names; changes nothing. `like` is a
   * list of the entries of a similar policy. The function first compares the identities in these entries,
   * which is faster than the index.
   */
  find(ruleNames: RuleNames, like: Uint32Array = NOTHING): Placement {
    const { identities } = ruleNames;
    const ranks = identities.length / 2;
    const entries = new Uint32Array(ranks);
    // If two compiled policies differ in one place, the rules before that place have the same rank (index) in
    // both. The rules after it have the same distance from the last rank. So `before` or `behind` usually
    // finds the entry.
    const shift = like.length - ranks;
    let missing = 0;
    for (let rank = 0; rank < ranks; rank++) {
      const low = u32At(identities, 2 * rank);
      if (low === 0) continue;
      const high = u32At(identities, 2 * rank + 1);
      const before = like[rank] ?? 0;
      const behind = like[rank + shift] ?? 0;
      const entry = this.#isOf(before, low, high)
        ? before
        : this.#isOf(behind, low, high)
          ? behind
          : this.#index.find(low, high);
      entries[rank] = entry;
      if (entry === 0) missing++;
    }
    return { ruleNames, entries, missing };
  }

  /**
   * Returns how many ranks (places of rules and defaults), and how many entries of `hits`, are necessary to
   * keep the given policy and those in `usedSlots`. Entries that no such policy uses count as free.
   */
  need({ entries, missing }: Placement, usedSlots: readonly Slot[]): { readonly ranks: number; readonly hits: number } {
    const ranks = entries.length;
    if (this.#index.count + missing < this.capacity) return { ranks, hits: this.#index.count + missing + 1 };
    return { ranks, hits: this.#inUse(entries, usedSlots).count + missing + 1 };
  }

  /**
   * Throws `CapacityExceeded` if `rank_hits` has too few elements for the rules and defaults of a policy, or
   * `hits` has too few entries.
   */
  checkRoom(placement: Placement, usedSlots: readonly Slot[]): void {
    const { ranks, hits } = this.need(placement, usedSlots);
    if (ranks > this.rankCapacity) throw new CapacityExceeded('rank_hits', ranks, this.rankCapacity);
    if (hits > this.capacity) throw new CapacityExceeded('hits', hits - 1, this.capacity - 1);
  }

  /**
   * Writes the entries of a policy's ranks (places of rules and defaults) into one program slot of
   * `rank_hits`, and returns the entries. At the call, no CPU may still read that slot for a packet. The
   * counters of each flow that the slot decided must be flushed, because a flush stores in the flow the entry
   * that the flow counts for.
   */
  fill(slot: Slot, { ruleNames, entries, missing }: Placement, usedSlots: readonly Slot[]): Uint32Array {
    if (this.#index.count + missing >= this.capacity) this.#makeRoom(entries, missing, usedSlots);
    const { identities } = ruleNames;
    const now = process.hrtime.bigint();
    const [nowLow, nowHigh] = [Number(now & 0xffff_ffffn), Number(now >> 32n)];
    for (let rank = 0; rank < entries.length; rank++) {
      const low = u32At(identities, 2 * rank);
      if (entries[rank] !== 0 || low === 0) continue;
      entries[rank] = this.#take(low, u32At(identities, 2 * rank + 1), nowLow, nowHigh);
    }
    const refs = this.#refs(slot);
    for (let rank = 0; rank < entries.length; rank++) {
      refs[rank * REF_WORDS + REF_HIT] = u32At(entries, rank);
      refs[rank * REF_WORDS + REF_CHECK] = u32At(identities, 2 * rank);
    }
    refs.fill(0, entries.length * REF_WORDS);
    return entries;
  }

  unmap(): void {
    this.#hits.unmap();
    this.#ranks.unmap();
  }

  #isOf(entry: number, low: number, high: number): boolean {
    const word = entry * WORDS + LOW;
    return this.#words[word] === low && this.#words[word + 1] === high;
  }

  #take(low: number, high: number, nowLow: number, nowHigh: number): number {
    const entry = this.#index.nextFree();
    const words = this.#words;
    const first = entry * WORDS;
    // The entry's other fields are zero: a new map contains zeros, and `#makeRoom` clears each entry that it
    // frees.
    words[first + LAST] = nowLow;
    words[first + LAST + 1] = nowHigh;
    words[first + LOW + 1] = high;
    words[first + LOW] = low;
    this.#index.add(entry, low);
    return entry;
  }

  /**
   * Returns the time of the last hit of an entry, or of its assignment, as a double. The double rounds the
   * nanoseconds but keeps the order of times.
   */
  #lastUsed(entry: number): number {
    const at = entry * WORDS + LAST;
    return u32At(this.#words, at + 1) * 0x1_0000_0000 + u32At(this.#words, at);
  }

  #refs(slot: Slot): Uint32Array {
    const words = this.rankCapacity * REF_WORDS;
    return this.#ranks.words.subarray(slot * words, (slot + 1) * words);
  }

  /**
   * Returns which entries of `hits` the policies in `usedSlots` or the list `entries` use, and their number.
   */
  #inUse(entries: Uint32Array, usedSlots: readonly Slot[]): { readonly used: Uint8Array; readonly count: number } {
    const used = new Uint8Array(this.capacity);
    for (const entry of entries) used[entry] = 1;
    for (const slot of usedSlots) {
      const refs = this.#refs(slot);
      for (let at = REF_HIT; at < refs.length; at += REF_WORDS) used[u32At(refs, at)] = 1;
    }
    used[0] = 0;
    return { used, count: used.reduce((sum, one) => sum + one, 0) };
  }

  /** Frees the unused entries of `hits` whose last hit or assignment is the longest time ago. */
  #makeRoom(entries: Uint32Array, missing: number, usedSlots: readonly Slot[]): void {
    const { used } = this.#inUse(entries, usedSlots);
    const isUnused = (entry: number): boolean => used[entry] === 0 && this.#words[entry * WORDS + LOW] !== 0;
    const times = new Float64Array(this.capacity);
    let unused = 0;
    for (let entry = 1; entry < this.capacity; entry++) if (isUnused(entry)) times[unused++] = this.#lastUsed(entry);
    const wanted = Math.max(this.#index.count + missing + 1 - this.capacity, Math.ceil(this.capacity / FREED_SHARE));
    const latest = times.subarray(0, unused).sort()[Math.min(wanted, unused) - 1] ?? Number.POSITIVE_INFINITY;
    for (let entry = 1, left = wanted; entry < this.capacity && left > 0; entry++) {
      if (!isUnused(entry) || this.#lastUsed(entry) > latest) continue;
      this.#words.fill(0, entry * WORDS, (entry + 1) * WORDS);
      left--;
    }
    this.#index = new HitIndex(this.#words, this.capacity);
  }
}
