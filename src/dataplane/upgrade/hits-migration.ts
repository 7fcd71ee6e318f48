import type { StructLayout } from '#dataplane/abi/btf.js';
import type { MapDescription } from '#dataplane/loader/bpf-object.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { conversion } from './struct-conversion.js';

/** A map `hits` and its description. The datapath that uses the map may have an earlier layout version. */
export type HitsMap = { readonly fd: number; readonly description: MapDescription };

/**
 * Migrates hits from an old map to a new map that no BPF program uses yet. An entry keeps its index, because
 * flows refer to the index. `finish` migrates the delta: the hits that BPF programs counted in the old map
 * after the constructor had read it.
 */
export class HitsMigration {
  readonly #old: Hits;
  readonly #fresh: Hits;
  readonly #migrated: BigUint64Array;

  constructor(from: HitsMap, to: HitsMap) {
    this.#old = new Hits(from);
    this.#fresh = new Hits(to);
    const count = Math.min(this.#old.count, this.#fresh.count);
    const convert = conversion(this.#old.layout, this.#fresh.layout);
    this.#migrated = new BigUint64Array(2 * count);
    const [source, target] = [this.#old.view, this.#fresh.view];
    for (let entry = 0; entry < count; entry++) {
      this.#migrated[2 * entry] = this.#old.packets(entry);
      this.#migrated[2 * entry + 1] = this.#old.bytes(entry);
      convert(source, entry * this.#old.layout.size, target, entry * this.#fresh.layout.size);
    }
  }

  /**
   * Adds the hits that were counted in the old map since the constructor read it, and unmaps both maps. May
   * be called only when no BPF program counts in the old map any more.
   */
  finish(): void {
    for (let entry = 0; entry < this.#migrated.length / 2; entry++) {
      if (this.#old.identity(entry) !== this.#fresh.identity(entry)) continue;
      const packets = this.#old.packets(entry) - (this.#migrated[2 * entry] ?? 0n);
      const bytes = this.#old.bytes(entry) - (this.#migrated[2 * entry + 1] ?? 0n);
      if (packets > 0n || bytes > 0n) this.#fresh.add(entry, packets, bytes, this.#old.last(entry));
    }
    this.close();
  }

  close(): void {
    this.#old.close();
    this.#fresh.close();
  }
}

/** The entries of a BPF map `hits` (packet counters of rules), mapped into memory. */
class Hits {
  readonly layout: StructLayout;
  readonly count: number;
  readonly view: DataView;
  readonly #memory: MappedMemory;
  readonly #words: BigUint64Array;

  constructor({ fd, description: { value, maxEntries } }: HitsMap) {
    this.layout = value;
    this.count = maxEntries;
    this.#memory = new MappedMemory('hits', fd, maxEntries * value.size);
    const { buffer } = this.#memory.words;
    this.view = new DataView(buffer);
    this.#words = new BigUint64Array(buffer);
  }

  packets = (entry: number): bigint => this.#words[this.#at(entry, 'packets')] ?? 0n;
  bytes = (entry: number): bigint => this.#words[this.#at(entry, 'bytes')] ?? 0n;
  last = (entry: number): bigint => this.#words[this.#at(entry, 'last_ns')] ?? 0n;
  identity = (entry: number): bigint => this.#words[this.#at(entry, 'identity')] ?? 0n;

  /** Adds packets and bytes atomically, because BPF programs add to the same entry at the same time. */
  add(entry: number, packets: bigint, bytes: bigint, lastNs: bigint): void {
    Atomics.add(this.#words, this.#at(entry, 'packets'), packets);
    Atomics.add(this.#words, this.#at(entry, 'bytes'), bytes);
    const last = this.#at(entry, 'last_ns');
    if ((this.#words[last] ?? 0n) < lastNs) this.#words[last] = lastNs;
  }

  close(): void {
    this.#memory.unmap();
  }

  #at(entry: number, member: string): number {
    const field = this.layout.fields[member];
    if (field === undefined) throw new RangeError(`migrate the hits of rules: the old layout has no field ${member}`);
    return (entry * this.layout.size + field.offset) / 8;
  }
}
