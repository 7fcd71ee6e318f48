import type { StructLayout } from '#dataplane/abi/btf.js';
import { FLOW_HALF_OPEN, KEY_USED } from '#dataplane/abi/flow.js';
import { completeFlow, completionOffsets } from '#dataplane/flows/flow-completion.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import { batchesOf } from '#dataplane/loader/map-batches.js';
import type { PinnedMaps } from '#dataplane/object/map-set.js';
import { libbpf } from '#libc/libbpf.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { type FlowTable, withTally } from './flow-conversion.js';

/**
 * A flow in a buffer. The iterator overwrites the buffer with the next flow. `reread` reads the present state
 * of the same flow into the buffer, and returns false if the flow has ended.
 */
type PinnedFlow = { readonly view: DataView; readonly reread: () => boolean };

/** The flows in one flow table of a pinned datapath, and their layout. */
export type PinnedFlows = {
  readonly table: FlowTable;
  readonly layout: StructLayout;
  readonly flows: Iterable<PinnedFlow>;
};

type Lines = { readonly flows: 'flows' | 'half_open'; readonly tallies: 'tallies' | 'half_open_tallies' };
const LINES: Lines = { flows: 'flows', tallies: 'tallies' };
/** Names of the maps of half-open flows in layout version 2. */
const HALF_OPEN_LINES: Lines = { flows: 'half_open', tallies: 'half_open_tallies' };

/** Returns the flows of a pinned datapath of this or of an earlier layout version. */
export function pinnedFlows(set: PinnedMaps): PinnedFlows[] {
  if (!set.has('tallies')) return [{ table: 'flows', layout: set.describe('flows').value, flows: hashed(set) }];
  const of = (table: FlowTable, lines: Lines, marked?: boolean): PinnedFlows => {
    const [flow, tally] = [set.describe(lines.flows), set.describe(lines.tallies)];
    return { table, layout: withTally(flow.value, tally.value), flows: linesOf(set, lines, marked) };
  };
  // Read half-open flows before established flows. A flow that becomes established between the two reads is
  // then found by the second read.
  return set.has('half_open')
    ? [of('half_open', HALF_OPEN_LINES), of('flows', LINES)]
    : [of('half_open', LINES, true), of('flows', LINES, false)];
}

/** Reads the flows of layout version 1, which had one hash map for all flows. */
function* hashed(set: PinnedMaps): Generator<PinnedFlow> {
  const fd = set.fd('flows');
  const { keySize, valueSize, ...shape } = mapShape(fd);
  for (const { count, keys, values } of batchesOf(fd, { keySize, valueSize, ...shape })) {
    for (let at = 0; at < count; at++) {
      const key = keys.slice(at * keySize, (at + 1) * keySize);
      const value = values.subarray(at * valueSize, (at + 1) * valueSize);
      const view = new DataView(values.buffer, at * valueSize, valueSize);
      yield { view, reread: () => libbpf().bpf_map_lookup_elem(fd, key, value) >= 0 };
    }
  }
}

/**
 * Reads the flows of an array map. Yields only half-open flows if `marked` is true, only established flows
 * if it is false, and all flows if it is undefined.
 */
function* linesOf(set: PinnedMaps, names: Lines, marked: boolean | undefined): Generator<PinnedFlow> {
  const [flow, tally] = [set.describe(names.flows), set.describe(names.tallies)];
  const use = flow.value.fields['key.use']?.offset ?? 0;
  const flags = flow.value.fields.flags?.offset ?? 0;
  const flows = mapped(set, names.flows);
  const sums = mapped(set, names.tallies);
  const ranks = mapped(set, 'rank_hits');
  const record = new Uint8Array(flow.valueSize + tally.valueSize);
  const view = new DataView(record.buffer);
  const offsets = completionOffsets(withTally(flow.value, tally.value));
  const isHalfOpen = (): boolean => (view.getUint8(flags) & FLOW_HALF_OPEN) !== 0;
  const key = (): string => record.subarray(0, use).join();
  const read = (line: number): boolean => {
    record.set(new Uint8Array(flows.buffer, line * flow.valueSize, flow.valueSize));
    if (view.getUint16(use, true) !== KEY_USED) return false;
    record.set(new Uint8Array(sums.buffer, line * tally.valueSize, tally.valueSize), flow.valueSize);
    if (offsets !== undefined) completeFlow(view, offsets, ranks.words);
    return true;
  };
  try {
    for (let line = 0; line < flow.maxEntries; line++) {
      if (!read(line) || (marked ?? isHalfOpen()) !== isHalfOpen()) continue;
      const before = key();
      yield { view, reread: () => read(line) && key() === before };
    }
  } finally {
    flows.unmap();
    sums.unmap();
    ranks.unmap();
  }
}

function mapped(set: PinnedMaps, name: Lines['flows' | 'tallies'] | 'rank_hits'): MappedMemory {
  const { maxEntries, valueSize } = mapShape(set.fd(name));
  return new MappedMemory(name, set.fd(name), maxEntries * valueSize, { readOnly: true });
}
