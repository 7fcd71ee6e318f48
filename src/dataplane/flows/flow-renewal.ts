import { u32At } from '#arrays/read.js';
import {
  FLOW_KEY_OFFSETS,
  FLOW_OFFSETS,
  FLOW_STRUCT_BYTES,
  KEY_USED,
  OPENED_BY_HIGH,
  RECLASSIFY,
} from '#dataplane/abi/flow.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { MappedMemory } from '#libc/mapped-memory.js';

const WORDS = FLOW_STRUCT_BYTES / 4;
const LONGS = FLOW_STRUCT_BYTES / 8;
const WAYS = 8;
const LOW = FLOW_KEY_OFFSETS.low_address / 4;
const HIGH = FLOW_KEY_OFFSETS.high_address / 4;
const USE = FLOW_KEY_OFFSETS.protocol / 4;
const FLAGS = Math.floor(FLOW_OFFSETS.flags / 4);
const FLAGS_SHIFT = (FLOW_OFFSETS.flags % 4) * 8;
const JUDGEMENT = FLOW_OFFSETS.judgement / 8;
const RECLASSIFY_BIT = BigInt(RECLASSIFY) << 32n;
/**
 * The tag bits of all ways in the low half and in the high half of a tag word (flow_table.h), without the
 * half-open marks; as `EACH_TAG` of the BPF code.
 */
const TAGS_LOW = 0x7f7f_7f3f;
const TAGS_HIGH = 0x7f7f_7f7f;

/** Makes the datapath classify flows again after a change of the Kubernetes selectors of their sources. */
export class FlowRenewal {
  #mapped: MappedTable | undefined;

  /**
   * `object` returns the BPF object that is loaded now. When a policy needs larger maps, a new object
   * replaces it and keeps the flow table.
   */
  constructor(private readonly object: () => Pick<BpfObject, 'mapFd'>) {}

  /** Maps the flow table if it is not mapped. A later call of `reclassify` then does not fail. */
  map(): void {
    this.#table();
  }

  /**
   * Makes the next packet of each flow that one of the sources opened classify the flow again, also if that
   * packet is a reply. Returns the number of flows. Before the call, the changed sources must be stored in
   * the map `members`, and its count of changes must be incremented. So a packet that opens a flow by the
   * former entry of its source at the same time sees the new count, and marks its flow itself
   * (`check_members` in the BPF code).
   */
  reclassify(sources: ReadonlySet<number>): number {
    const table = this.#table();
    const tags = table.tags.words;
    let count = 0;
    for (let set = 0; set < table.sets; set++) {
      const low = u32At(tags, 2 * set) & TAGS_LOW;
      const high = u32At(tags, 2 * set + 1) & TAGS_HIGH;
      if ((low | high) === 0) continue;
      for (let way = 0; way < WAYS; way++) {
        const tag = way < 4 ? low >>> (8 * way) : high >>> (8 * (way - 4));
        if ((tag & 0x7f) !== 0 && markForReclassification(table, way * table.sets + set, sources)) count += 1;
      }
    }
    return count;
  }

  #table(): MappedTable {
    this.#mapped ??= mapTable(this.object());
    return this.#mapped;
  }

  unmap(): void {
    this.#mapped?.flows.unmap();
    this.#mapped?.tags.unmap();
    this.#mapped = undefined;
  }
}

type MappedTable = {
  readonly flows: MappedMemory;
  readonly tags: MappedMemory;
  readonly judgements: BigUint64Array;
  readonly sets: number;
};

function mapTable(object: Pick<BpfObject, 'mapFd'>): MappedTable {
  const fd = object.mapFd('flows');
  const { maxEntries } = mapShape(fd);
  const sets = maxEntries / WAYS;
  const flows = new MappedMemory('flows', fd, maxEntries * FLOW_STRUCT_BYTES);
  try {
    const tags = new MappedMemory('flow_tags', object.mapFd('flow_tags'), sets * 8, { readOnly: true });
    return { flows, tags, judgements: new BigUint64Array(flows.buffer), sets };
  } catch (failure) {
    flows.unmap();
    throw failure;
  }
}

function markForReclassification(
  { flows, judgements }: MappedTable,
  line: number,
  sources: ReadonlySet<number>,
): boolean {
  const { words } = flows;
  const at = line * WORDS;
  if (u32At(words, at + USE) >>> 16 !== KEY_USED) return false;
  const isHigh = ((u32At(words, at + FLAGS) >>> FLAGS_SHIFT) & OPENED_BY_HIGH) !== 0;
  if (!sources.has(u32At(words, at + (isHigh ? HIGH : LOW)))) return false;
  const place = line * LONGS + JUDGEMENT;
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
