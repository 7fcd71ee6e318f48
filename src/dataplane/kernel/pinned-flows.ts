import type { StructLayout } from '#dataplane/program/btf.js';
import { KEY_USED } from '#dataplane/program/flow.js';
import { type FlowTable, withTally } from '#dataplane/program/flow-conversion.js';
import { batchesOf } from './batches.js';
import { describeMap } from './bpf-fd.js';
import { MappedMemory } from './mapped-memory.js';
import type { MapSet } from './map-set.js';

/** Flows of one table, each valid until the next, laid out as `layout` says. */
export type PinnedFlows = {
  readonly table: FlowTable;
  readonly layout: StructLayout;
  readonly records: Iterable<DataView>;
};

const TABLES = [
  { table: 'flows', tallies: 'tallies' },
  { table: 'half_open', tallies: 'half_open_tallies' },
] as const;

/** The flows of a datapath of this layout or an older one. */
export function pinnedFlows(set: MapSet): PinnedFlows[] {
  if (!set.has('tallies')) return [{ table: 'flows', layout: describeMap(set.fd('flows')).value, records: hashed(set) }];
  return TABLES.map(({ table, tallies }) => {
    const [flow, tally] = [describeMap(set.fd(table)), describeMap(set.fd(tallies))];
    return { table, layout: withTally(flow.value, tally.value), records: lines(set, table, tallies) };
  });
}

/** Layout 1 had one table, a hash. */
function* hashed(set: MapSet): Generator<DataView> {
  const description = describeMap(set.fd('flows'));
  for (const { count, values } of batchesOf(set.fd('flows'), description)) {
    for (let at = 0; at < count; at++) yield new DataView(values.buffer, at * description.valueSize);
  }
}

function* lines(set: MapSet, table: FlowTable, tallies: 'tallies' | 'half_open_tallies'): Generator<DataView> {
  const [flow, tally] = [describeMap(set.fd(table)), describeMap(set.fd(tallies))];
  const use = flow.value.fields['key.use']?.offset ?? 0;
  const flows = mapped(set, table, flow.maxEntries * flow.valueSize);
  const sums = mapped(set, tallies, tally.maxEntries * tally.valueSize);
  const record = new Uint8Array(flow.valueSize + tally.valueSize);
  const view = new DataView(record.buffer);
  try {
    for (let line = 0; line < flow.maxEntries; line++) {
      record.set(new Uint8Array(flows.buffer, line * flow.valueSize, flow.valueSize));
      if (view.getUint16(use, true) !== KEY_USED) continue;
      record.set(new Uint8Array(sums.buffer, line * tally.valueSize, tally.valueSize), flow.valueSize);
      yield view;
    }
  } finally {
    flows.unmap();
    sums.unmap();
  }
}

function mapped(set: MapSet, name: 'flows' | 'tallies' | 'half_open' | 'half_open_tallies', bytes: number): MappedMemory {
  return new MappedMemory(name, set.fd(name), bytes, { readOnly: true });
}
