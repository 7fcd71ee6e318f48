import { randomBytes } from 'node:crypto';
import type { Grant, Learned } from '#contracts/datapath/datapath.js';
import type { Address, Family } from '#contracts/policy/policy-model.js';
import { SLOT_COUNT, type Slot } from '#dataplane/abi/active-word.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { GRANT_LAYOUTS, LINE, linesFor, PATTERN, PATTERNS, THIRD_WORDS } from './grant-layout.js';
import { Grants } from './grants.js';

type Entries = { readonly entries: number; readonly capacity: number };
type Maps = Pick<BpfObject, 'mapFd'>;
/** The BPF objects with the maps; `ipv6` is null if no IPv6 is enforced. All have the same map `patterns`. */
export type GrantObjects = { readonly ipv4: Maps; readonly ipv6: Maps | null };

/**
 * The learned addresses, in the BPF maps `grants` of each family, and in `patterns`. A node without hostname
 * patterns does not map them, because their pages are 32 MiB of resident memory, and with IPv6 36 MiB more.
 * They are mapped from the first policy with patterns on, until `unmap`. The methods are those of `Grants`.
 */
export class MappedGrants {
  #mapped: { readonly grants: Grants; readonly memory: readonly MappedMemory[] } | undefined;
  /** The map `third_names`; undefined while the datapath has two slots. */
  #third: MappedMemory | undefined;

  constructor(
    private objects: GrantObjects,
    private readonly capacity: number,
    private slotCount: number = SLOT_COUNT.usual,
  ) {}

  /** The families whose addresses can be granted. */
  get families(): readonly Family[] {
    return this.objects.ipv6 === null ? ['ipv4'] : ['ipv4', 'ipv6'];
  }

  addressesOf(family: Family): Entries {
    return this.#mapped?.grants.addressesOf(family) ?? { entries: 0, capacity: this.capacity };
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
   * Takes over the maps of an earlier process. They stay mapped into memory if a policy in the slots `used`,
   * which this process took over, has hostname patterns.
   */
  recover(used: readonly Slot[]): void {
    if (this.#map(used).patterns.entries === 0) this.unmap();
  }

  /** Switches to other BPF objects whose maps `grants` and `patterns` are the same maps. */
  passTo(objects: GrantObjects, slotCount: number): void {
    this.objects = objects;
    this.slotCount = slotCount;
    if (this.#mapped === undefined) return;
    const before = this.#third;
    this.#third = this.#mapThird();
    this.#mapped.grants.useThirdNames(this.#third?.words);
    before?.unmap();
  }

  /**
   * Copies all grants from the map `grants` of a family behind the file descriptor `fd`. The numbers of the
   * hostname patterns must be the same in that map.
   */
  learnFrom(fd: number, family: Family): void {
    if (this.#mapped === undefined) return;
    const { maxEntries, valueSize } = mapShape(fd);
    const table = new MappedMemory('grants', fd, maxEntries * valueSize);
    this.#mapped.grants.learnFrom(table.words, family);
    table.unmap();
  }

  add(grants: readonly Grant[], nowNs: bigint): number {
    return this.#mapped?.grants.add(grants, nowNs) ?? 0;
  }

  remove(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): void {
    this.#mapped?.grants.remove(grants);
  }

  patternsOf(address: Address, nowNs: bigint): readonly string[] {
    return this.#mapped?.grants.patternsOf(address, nowNs) ?? [];
  }

  learned(nowNs: bigint): readonly Learned[] {
    return this.#mapped?.grants.learned(nowNs) ?? [];
  }

  /** Like `Grants.makeRoom`, but first maps the BPF maps if needed. Throws `KernelFailure` if that fails. */
  makeRoom(patterns: readonly string[], waitForGracePeriod: () => void): void {
    if (patterns.length === 0 && this.#mapped === undefined) return;
    (this.#mapped?.grants ?? this.#map([])).makeRoom(patterns, waitForGracePeriod);
  }

  fill(slot: Slot, patterns: readonly string[], yieldToRequests?: () => void): void {
    this.#mapped?.grants.fill(slot, patterns, yieldToRequests);
  }

  activated(used: readonly Slot[]): void {
    this.#mapped?.grants.activated(used);
  }

  sweep(nowNs: bigint, yieldToRequests?: () => void): void {
    this.#mapped?.grants.sweep(nowNs, yieldToRequests);
  }

  afterGrace(): void {
    this.#mapped?.grants.afterGrace();
  }

  unmap(): void {
    for (const each of this.#mapped?.memory ?? []) each.unmap();
    this.#third?.unmap();
    this.#mapped = undefined;
    this.#third = undefined;
  }

  #mapThird(): MappedMemory | undefined {
    if (this.slotCount === SLOT_COUNT.usual) return undefined;
    return new MappedMemory('third_names', this.objects.ipv4.mapFd('third_names'), PATTERNS * THIRD_WORDS * 4);
  }

  #map(used: readonly Slot[]): Grants {
    const { capacity } = this;
    const memory: MappedMemory[] = [];
    const map = (object: Maps, name: 'grants' | 'patterns', bytes: number): Uint32Array => {
      const mapped = new MappedMemory(name, object.mapFd(name), bytes);
      memory.push(mapped);
      return mapped.words;
    };
    try {
      const tables = new Map<Family, Uint32Array>();
      for (const family of this.families) {
        const object = this.objects[family];
        if (object !== null) tables.set(family, map(object, 'grants', linesFor(capacity, family) * LINE.words * 4));
      }
      const patterns = map(this.objects.ipv4, 'patterns', PATTERNS * PATTERN.words * 4);
      // BPF programs may still be reading places that an earlier process freed.
      awaitGracePeriod();
      const random = new Uint32Array(GRANT_LAYOUTS.ipv6.randomWords);
      randomBytes(random.byteLength).copy(new Uint8Array(random.buffer));
      this.#third = this.#mapThird();
      const thirdNames = this.#third?.words;
      const grants = new Grants({ grants: tables, patterns, thirdNames }, { capacity, used, random });
      this.#mapped = { grants, memory };
      return grants;
    } catch (failure) {
      for (const each of memory) each.unmap();
      this.#third?.unmap();
      this.#third = undefined;
      throw failure;
    }
  }
}
