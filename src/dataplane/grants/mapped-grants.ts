import { randomBytes } from 'node:crypto';
import type { Grant, Learned } from '#contracts/datapath/datapath.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { LINE, linesFor, PATTERN, PATTERNS } from './grant-layout.js';
import { Grants } from './grants.js';
import type { Slot } from './pattern-table.js';

type Entries = { readonly entries: number; readonly capacity: number };

/**
 * The learned addresses, in the BPF maps `grants` and `patterns`. A node without hostname patterns does not
 * map them, because their pages are 32 MiB of resident memory. They are mapped from the first policy with
 * patterns on, until `unmap`. The methods are those of `Grants`.
 */
export class MappedGrants {
  #mapped: { readonly grants: Grants; readonly memory: readonly MappedMemory[] } | undefined;

  constructor(
    private readonly object: Pick<BpfObject, 'mapFd'>,
    private readonly capacity: number,
  ) {}

  get addresses(): Entries {
    return this.#mapped?.grants.addresses ?? { entries: 0, capacity: this.capacity };
  }

  get patterns(): Entries {
    return this.#mapped?.grants.patterns ?? { entries: 0, capacity: PATTERNS };
  }

  get refused(): number {
    return this.#mapped?.grants.refused ?? 0;
  }

  get isGraceDue(): boolean {
    return this.#mapped?.grants.isGraceDue ?? false;
  }

  /**
   * Takes over the maps of an earlier process. They stay mapped if the policy in the slot `inForce` has
   * hostname patterns. `inForce` is undefined if this process adopted no compiled policy.
   */
  recover(inForce: Slot | undefined): void {
    if (this.#map(inForce).patterns.entries === 0) this.unmap();
  }

  /** Returns the learned addresses for a new BPF object, which uses the maps of the present object. */
  passTo(object: BpfObject): MappedGrants {
    return this.#mapped === undefined ? new MappedGrants(object, this.capacity) : this;
  }

  /**
   * Copies all grants from the map `grants` behind the file descriptor `fd`. The numbers of the hostname
   * patterns must be the same in that map.
   */
  learnFrom(fd: number): void {
    if (this.#mapped === undefined) return;
    const { maxEntries, valueSize } = mapShape(fd);
    const table = new MappedMemory('grants', fd, maxEntries * valueSize);
    this.#mapped.grants.learnFrom(table.words);
    table.unmap();
  }

  add(grants: readonly Grant[], nowNs: bigint): number {
    return this.#mapped?.grants.add(grants, nowNs) ?? 0;
  }

  remove(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): void {
    this.#mapped?.grants.remove(grants);
  }

  patternsOf(address: number, nowNs: bigint): readonly string[] {
    return this.#mapped?.grants.patternsOf(address, nowNs) ?? [];
  }

  learned(nowNs: bigint): readonly Learned[] {
    return this.#mapped?.grants.learned(nowNs) ?? [];
  }

  /** Like `Grants.makeRoom`, but first maps the BPF maps if needed. Throws `KernelFailure` if that fails. */
  makeRoom(patterns: readonly string[], waitForGracePeriod: () => void): void {
    if (patterns.length === 0 && this.#mapped === undefined) return;
    (this.#mapped?.grants ?? this.#map(undefined)).makeRoom(patterns, waitForGracePeriod);
  }

  fill(slot: Slot, patterns: readonly string[], yieldToRequests?: () => void): void {
    this.#mapped?.grants.fill(slot, patterns, yieldToRequests);
  }

  activated(slot: Slot): void {
    this.#mapped?.grants.activated(slot);
  }

  sweep(nowNs: bigint, yieldToRequests?: () => void): void {
    this.#mapped?.grants.sweep(nowNs, yieldToRequests);
  }

  afterGrace(): void {
    this.#mapped?.grants.afterGrace();
  }

  unmap(): void {
    for (const each of this.#mapped?.memory ?? []) each.unmap();
    this.#mapped = undefined;
  }

  #map(inForce: Slot | undefined): Grants {
    const { capacity } = this;
    const memory: MappedMemory[] = [];
    const map = (name: 'grants' | 'patterns', bytes: number): Uint32Array => {
      const mapped = new MappedMemory(name, this.object.mapFd(name), bytes);
      memory.push(mapped);
      return mapped.words;
    };
    try {
      const table = map('grants', linesFor(capacity) * LINE.words * 4);
      const patterns = map('patterns', PATTERNS * PATTERN.words * 4);
      // BPF programs may still be reading places that an earlier process freed.
      awaitGracePeriod();
      const random = new Uint32Array(4);
      randomBytes(random.byteLength).copy(new Uint8Array(random.buffer));
      const grants = new Grants({ grants: table, patterns }, { capacity, inForce, random });
      this.#mapped = { grants, memory };
      return grants;
    } catch (failure) {
      for (const each of memory) each.unmap();
      throw failure;
    }
  }
}
