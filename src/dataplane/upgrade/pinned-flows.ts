import type { StructLayout } from '#dataplane/abi/btf.js';
import { FLOW_HALF_OPEN, KEY_USED } from '#dataplane/abi/flow.js';
import { completeFlow, completionOffsets } from '#dataplane/flows/flow-completion.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import type { PinnedMaps } from '#dataplane/object/map-set.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { type FlowTable, withTally } from './struct-conversion.js';

/**
 * A flow in a buffer. The iterator overwrites the buffer with the next flow. `reread` reads the present state
 * of the same flow into the buffer, and returns false if the flow has ended.
 */
type PinnedFlow = { readonly view: DataView; readonly reread: () => boolean };

export type PinnedFlows = {
  readonly table: FlowTable;
  readonly layout: StructLayout;
  readonly flows: Iterable<PinnedFlow>;
};

export function pinnedFlows(set: PinnedMaps): PinnedFlows[] {
  const layout = withTally(set.describe('flows').value, set.describe('tallies').value);
  // Read half-open flows before established flows. A flow that becomes established between the two reads is
  // then found by the second read.
  return [
    { table: 'half_open', layout, flows: linesOf(set, true) },
    { table: 'flows', layout, flows: linesOf(set, false) },
  ];
}

function* linesOf(set: PinnedMaps, areHalfOpen: boolean): Generator<PinnedFlow> {
  const [flow, tally] = [set.describe('flows'), set.describe('tallies')];
  const use = flow.value.fields['key.use']?.offset ?? 0;
  const flags = flow.value.fields.flags?.offset ?? 0;
  const flows = mapped(set, 'flows');
  const sums = mapped(set, 'tallies');
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
      if (!read(line) || isHalfOpen() !== areHalfOpen) continue;
      const before = key();
      yield { view, reread: () => read(line) && key() === before };
    }
  } finally {
    flows.unmap();
    sums.unmap();
    ranks.unmap();
  }
}

function mapped(set: PinnedMaps, name: 'flows' | 'tallies' | 'rank_hits'): MappedMemory {
  const { maxEntries, valueSize } = mapShape(set.fd(name));
  return new MappedMemory(name, set.fd(name), maxEntries * valueSize, { readOnly: true });
}
