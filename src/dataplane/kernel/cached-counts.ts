import type { StructLayout } from '#dataplane/program/btf.js';
import { batchesOf } from './batches.js';
import { describeMap } from './bpf-fd.js';
import type { MapSet } from './map-set.js';

type Counts = {
  /** By the flow's low and high side. */
  readonly packets: readonly [number, number];
  readonly bytes: readonly [bigint, bigint];
  readonly lastSeen: number;
};

const CLAIMED = 1n;
const OPENED_BY_HIGH = 1;

/** What the cache of a datapath counted and its flows did not take over yet. Nobody may count there any more. */
export class CachedCounts {
  readonly #counts = new Map<string, Counts>();

  constructor(set: MapSet) {
    if (!set.has('cache')) return;
    const fd = set.fd('cache');
    const description = describeMap(fd);
    const { size, fields } = description.value;
    const at = (name: string): number => fields[name]?.offset ?? 0;
    for (const { count, values } of batchesOf(fd, description)) {
      const view = new DataView(values.buffer);
      for (let line = 0; line < count; line++) {
        const u32 = (name: string, index = 0): number => view.getUint32(line * size + at(name) + 4 * index, true);
        const u64 = (name: string, index = 0): bigint => view.getBigUint64(line * size + at(name) + 8 * index, true);
        if (u64('judgement') <= CLAIMED) continue;
        const packets = (side: number): number => (u32('packets', side) - u32('taken_packets', side)) >>> 0;
        const bytes = (side: number): bigint => BigInt.asUintN(64, u64('bytes', side) - u64('taken_bytes', side));
        this.#counts.set(`${u64('addresses')},${u64('rest')}`, {
          packets: [packets(0), packets(1)],
          bytes: [bytes(0), bytes(1)],
          lastSeen: u32('last_seen'),
        });
      }
    }
  }

  /** Adds them to a flow of this layout. */
  addTo(flow: DataView, { fields }: StructLayout): void {
    const at = (name: string): number => fields[name]?.offset ?? 0;
    const key = `${flow.getBigUint64(at('key.low_address'), true)},${flow.getBigUint64(at('key.low_port'), true)}`;
    const counts = this.#counts.get(key);
    if (counts === undefined) return;
    const byHigh = flow.getUint8(at('flags')) & OPENED_BY_HIGH;
    for (const high of [0, 1] as const) {
      const side = high ^ byHigh;
      const packets = at('packets') + 4 * side;
      flow.setUint32(packets, (flow.getUint32(packets, true) + counts.packets[high]) >>> 0, true);
      const bytes = at('bytes') + 8 * side;
      flow.setBigUint64(bytes, BigInt.asUintN(64, flow.getBigUint64(bytes, true) + counts.bytes[high]), true);
    }
    // Ticks wrap, and are compared by difference.
    if (((counts.lastSeen - flow.getUint32(at('last_seen'), true)) | 0) > 0) {
      flow.setUint32(at('last_seen'), counts.lastSeen, true);
    }
  }
}
