import type { DatapathStats } from '#contracts/datapath/datapath.js';
import type { Address, Family } from '#contracts/policy/policy-model.js';
import { capacityOf, FLOW_LAYOUTS, type FlowLayout } from '#dataplane/abi/flow.js';
import { FlowTable } from '#dataplane/flows/listing/flow-table.js';
import { MappedFlows } from '#dataplane/flows/listing/mapped-flows.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { countEntries } from '#dataplane/loader/map-batches.js';
import { FlowSweep } from './sweep.js';

/** The names of the maps of each family in statistics. */
const NAMES = {
  ipv4: { flows: 'flows', halfOpen: 'half_open', fragments: 'fragments' },
  ipv6: { flows: 'flows_ipv6', halfOpen: 'half_open_ipv6', fragments: 'fragments_ipv6' },
} as const;

/** The flow table of one IP family, its sweep and its fragments. */
export class FamilyTable {
  readonly layout: FlowLayout<Address>;
  readonly flows: FlowTable;
  readonly sweep: FlowSweep;

  constructor(
    readonly family: Family,
    private readonly object: BpfObject,
  ) {
    this.layout = FLOW_LAYOUTS[family];
    this.sweep = new FlowSweep({ vitals: object.mapFd('vitals'), sweep: object.programFd('weir_sweep') });
    const fds = { flows: object.mapFd('flows'), tallies: object.mapFd('tallies'), rankHits: object.mapFd('rank_hits') };
    this.flows = new FlowTable(this.layout, () => new MappedFlows(this.layout, fds), object.programFd('weir_cut'));
  }

  /**
   * Returns the results of the last sweep (walk over the flow table). Starts a new sweep first if the last
   * one is long enough ago.
   */
  stats(): { readonly flows: number; readonly halfOpen: number } & Pick<DatapathStats, 'sweep' | 'maps'> {
    this.sweep.refresh();
    const { flows, halfOpen, lastSweep } = this.sweep;
    const fragments = mapShape(this.object.mapFd('fragments'));
    const { maxEntries: lines } = mapShape(this.object.mapFd('flows'));
    const names = NAMES[this.family];
    return {
      flows,
      halfOpen,
      sweep: lastSweep,
      maps: {
        [names.flows]: { entries: flows, capacity: capacityOf(lines) },
        [names.halfOpen]: { entries: halfOpen, capacity: lines - capacityOf(lines) },
        [names.fragments]: {
          entries: countEntries(this.object.mapFd('fragments'), fragments),
          capacity: fragments.maxEntries,
        },
      },
    };
  }

  close(): void {
    this.flows.close();
    this.sweep.unmap();
  }
}
