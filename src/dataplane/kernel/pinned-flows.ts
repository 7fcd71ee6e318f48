import type { StructLayout } from '#dataplane/program/btf.js';
import { KEY_USED } from '#dataplane/program/flow.js';
import { type FlowTable, withTally } from '#dataplane/program/flow-conversion.js';
import { batchesOf } from './batches.js';
import { describeMap } from './bpf-fd.js';
import { libbpf } from './libc.js';
import type { MapSet } from './map-set.js';
import { MappedMemory } from './mapped-memory.js';

/** A flow as it was read, until the next is; `again` reads it into the same memory, and answers false where it is gone. */
type PinnedFlow = { readonly view: DataView; readonly again: () => boolean };

/** Flows of one table, laid out as `layout` says. */
export type PinnedFlows = {
  readonly table: FlowTable;
  readonly layout: StructLayout;
  readonly flows: Iterable<PinnedFlow>;
};

/** A flow goes from the one to the other when it is answered: read in this order, none is missed. */
const TABLES = [
  { table: 'half_open', tallies: 'half_open_tallies' },
  { table: 'flows', tallies: 'tallies' },
] as const;

/** The flows of a datapath of this layout or an older one. */
export function pinnedFlows(set: MapSet): PinnedFlows[] {
  if (!set.has('tallies')) return [{ table: 'flows', layout: describeMap(set.fd('flows')).value, flows: hashed(set) }];
  return TABLES.map(({ table, tallies }) => {
    const [flow, tally] = [describeMap(set.fd(table)), describeMap(set.fd(tallies))];
    return { table, layout: withTally(flow.value, tally.value), flows: lines(set, table, tallies) };
  });
}

/** Layout 1 had one table, a hash. */
function* hashed(set: MapSet): Generator<PinnedFlow> {
  const fd = set.fd('flows');
  const { keySize, valueSize, ...shape } = describeMap(fd);
  for (const { count, keys, values } of batchesOf(fd, { keySize, valueSize, ...shape })) {
    for (let at = 0; at < count; at++) {
      const key = keys.slice(at * keySize, (at + 1) * keySize);
      const value = values.subarray(at * valueSize, (at + 1) * valueSize);
      const view = new DataView(values.buffer, at * valueSize, valueSize);
      yield { view, again: () => libbpf().bpf_map_lookup_elem(fd, key, value) >= 0 };
    }
  }
}

function* lines(set: MapSet, table: FlowTable, tallies: 'tallies' | 'half_open_tallies'): Generator<PinnedFlow> {
  const [flow, tally] = [describeMap(set.fd(table)), describeMap(set.fd(tallies))];
  const use = flow.value.fields['key.use']?.offset ?? 0;
  const flows = mapped(set, table, flow.maxEntries * flow.valueSize);
  const sums = mapped(set, tallies, tally.maxEntries * tally.valueSize);
  const record = new Uint8Array(flow.valueSize + tally.valueSize);
  const view = new DataView(record.buffer);
  const key = (): string => record.subarray(0, use).join();
  const read = (line: number): boolean => {
    record.set(new Uint8Array(flows.buffer, line * flow.valueSize, flow.valueSize));
    if (view.getUint16(use, true) !== KEY_USED) return false;
    record.set(new Uint8Array(sums.buffer, line * tally.valueSize, tally.valueSize), flow.valueSize);
    return true;
  };
  try {
    for (let line = 0; line < flow.maxEntries; line++) {
      if (!read(line)) continue;
      const before = key();
      yield { view, again: () => read(line) && key() === before };
    }
  } finally {
    flows.unmap();
    sums.unmap();
  }
}

function mapped(
  set: MapSet,
  name: 'flows' | 'tallies' | 'half_open' | 'half_open_tallies',
  bytes: number,
): MappedMemory {
  return new MappedMemory(name, set.fd(name), bytes, { readOnly: true });
}
