import type { AddressSet } from '#addresses/address-map.js';
import { familyOf } from '#addresses/ip-address.js';
import { memoryAddressAt, wordOfAddress } from '#addresses/memory-words.js';
import { u32At } from '#arrays/read.js';
import type { Address, Family } from '#contracts/policy/policy-model.js';
import { FLOW_LAYOUTS, type FlowLayout, KEY_USED, OPENED_BY_HIGH, RECLASSIFY } from '#dataplane/abi/flow.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { MappedMemory } from '#libc/mapped-memory.js';

const WAYS = 8;
const RECLASSIFY_BIT = BigInt(RECLASSIFY) << 32n;
/**
 * The tag bits of all ways in the low half and in the high half of a tag word (flow_table.h), without the
 * half-open marks; as `EACH_TAG` of the BPF code.
 */
const TAGS_LOW = 0x7f7f_7f3f;
const TAGS_HIGH = 0x7f7f_7f7f;

type Maps = Pick<BpfObject, 'mapFd'>;

/** Makes the datapath classify flows again after a change of the Kubernetes selectors of their sources. */
export class FlowRenewal {
  #mapped: readonly MappedTable[] | undefined;

  /**
   * `objects` returns the BPF objects that are loaded now; `ipv6` is null if no IPv6 is enforced. When a
   * policy needs larger maps, new objects replace them and keep the flow tables.
   */
  constructor(private readonly objects: () => Readonly<Record<Family, Maps | null>>) {}

  /** Maps the flow tables if they are not mapped. A later call of `reclassify` then does not fail. */
  map(): void {
    this.#tables();
  }

  /**
   * Makes the next packet of each flow that one of the sources opened classify the flow again, also if that
   * packet is a reply. Returns the number of flows. Before the call, the changed sources must be stored in
   * the map `members`, and its count of changes must be incremented. So a packet that opens a flow by the
   * former entry of its source at the same time sees the new count, and marks its flow itself
   * (`check_members` in the BPF code).
   */
  reclassify(sources: AddressSet): number {
    let count = 0;
    for (const table of this.#tables()) {
      const lowest = new Set<number>();
      for (const source of sources) if (familyOf(source) === table.family) lowest.add(wordOfAddress(source, 0));
      if (lowest.size > 0) count += reclassifyIn(table, { sources, lowest });
    }
    return count;
  }

  #tables(): readonly MappedTable[] {
    this.#mapped ??= mapTables(this.objects());
    return this.#mapped;
  }

  unmap(): void {
    for (const table of this.#mapped ?? []) unmapTable(table);
    this.#mapped = undefined;
  }
}

/** The flow table of one family. `flows` and `tags` are its maps. */
type MappedTable = {
  readonly family: Family;
  readonly layout: FlowLayout<Address>;
  readonly flows: MappedMemory;
  readonly tags: MappedMemory;
  readonly judgements: BigUint64Array;
  readonly sets: number;
};

/**
 * The changed sources. `lowest`: the lowest 32-bit word of each source of the family. Few flows have such a
 * word, so few addresses are read as a whole.
 */
type Changed = { readonly sources: AddressSet; readonly lowest: ReadonlySet<number> };

function mapTables(objects: Readonly<Record<Family, Maps | null>>): readonly MappedTable[] {
  const tables: MappedTable[] = [];
  try {
    for (const family of ['ipv4', 'ipv6'] as const) {
      const object = objects[family];
      if (object !== null) tables.push(mapTable(family, object));
    }
    return tables;
  } catch (failure) {
    tables.forEach(unmapTable);
    throw failure;
  }
}

function mapTable(family: Family, object: Maps): MappedTable {
  const layout: FlowLayout<Address> = FLOW_LAYOUTS[family];
  const fd = object.mapFd('flows');
  const { maxEntries } = mapShape(fd);
  const sets = maxEntries / WAYS;
  const flows = new MappedMemory('flows', fd, maxEntries * layout.structBytes);
  try {
    const tags = new MappedMemory('flow_tags', object.mapFd('flow_tags'), sets * 8, { readOnly: true });
    return { family, layout, flows, tags, judgements: new BigUint64Array(flows.buffer), sets };
  } catch (failure) {
    flows.unmap();
    throw failure;
  }
}

function unmapTable({ flows, tags }: MappedTable): void {
  flows.unmap();
  tags.unmap();
}

function reclassifyIn(table: MappedTable, changed: Changed): number {
  const tags = table.tags.words;
  let count = 0;
  for (let set = 0; set < table.sets; set++) {
    const low = u32At(tags, 2 * set) & TAGS_LOW;
    const high = u32At(tags, 2 * set + 1) & TAGS_HIGH;
    if ((low | high) === 0) continue;
    for (let way = 0; way < WAYS; way++) {
      const tag = way < 4 ? low >>> (8 * way) : high >>> (8 * (way - 4));
      if ((tag & 0x7f) !== 0 && markForReclassification(table, way * table.sets + set, changed)) count += 1;
    }
  }
  return count;
}

function markForReclassification(
  { family, layout, flows, judgements }: MappedTable,
  line: number,
  { sources, lowest }: Changed,
): boolean {
  const { keyOffsets, offsets, structBytes } = layout;
  const { words } = flows;
  const at = (line * structBytes) / 4;
  if (u32At(words, at + keyOffsets.protocol / 4) >>> 16 !== KEY_USED) return false;
  const flags = u32At(words, at + Math.floor(offsets.flags / 4)) >>> ((offsets.flags % 4) * 8);
  const opener = at + ((flags & OPENED_BY_HIGH) === 0 ? keyOffsets.low_address : keyOffsets.high_address) / 4;
  if (!lowest.has(u32At(words, opener)) || !sources.has(memoryAddressAt(words, opener, family))) return false;
  const place = (line * structBytes + offsets.judgement) / 8;
  const before = Atomics.load(judgements, place);
  // Do not change a flow that no rule decided, which has no active word (the policy that classified it).
  // After an upgrade, the active word of other flows can be 0 too; then the next packet classifies the flow
  // anyway.
  if (before >> 32n === 0n || (before & RECLASSIFY_BIT) !== 0n) return false;
  // If a packet classifies the flow at this moment, it reads the new entry of its source, or marks the flow
  // itself. If another flow takes the cache line meanwhile, its next packet classifies that flow once more,
  // which does no harm.
  return Atomics.compareExchange(judgements, place, before, before | RECLASSIFY_BIT) === before;
}
