import type { Field, StructLayout } from '#dataplane/abi/btf.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { TestRun } from '#libc/bpf/test-run.js';
import type { FlowTable } from './struct-conversion.js';

/**
 * Offsets of the fields of `struct migrate_flow_request` after the flow and its statistics (`struct tally`),
 * in bytes from the end of the statistics.
 */
const AT = { half: 0, migrated: 4, mode: 8, stateAndFlags: 12, bytes: 16 } as const;
/** The numbers of `enum migrate_mode` of the BPF code: how a flow is added to the new flow table. */
const MODE = { first: 0, delta: 1, ifAbsent: 2 } as const;
const RUNNING = [
  { now: 'packets', before: 'folded_packets' },
  { now: 'bytes', before: 'folded_bytes' },
] as const;
const TOTALS = ['total_packets', 'total_bytes'] as const;

/** Migrates flows of an earlier datapath to the flow table of this datapath, one flow at a time. */
export class FlowMigration {
  /**
   * The input buffer. Before each call of `migrate`, the caller must write a flow to it: a `struct flow`,
   * followed by its `struct tally`.
   */
  readonly flow: DataView;
  readonly #program: TestRun;
  readonly #earlier: DataView;

  constructor(
    object: BpfObject,
    readonly layout: StructLayout,
  ) {
    const request = new Uint8Array(layout.size + AT.bytes);
    this.flow = new DataView(request.buffer);
    this.#earlier = new DataView(new ArrayBuffer(layout.size));
    this.#program = new TestRun(object.programFd('weir_migrate_flow'), undefined, request, undefined);
  }

  /**
   * Adds the flow in the buffer `flow` to the flow table of this datapath. Returns false if the flow was not
   * added: the table is full, the flow already exists there, or it has a loopback address. If the flow is
   * established in both datapaths, the counts in the buffer are added to the existing flow.
   */
  migrate(table: FlowTable): boolean {
    return this.#migrate(table, MODE.first);
  }

  /** Like `migrate`, but does nothing if this datapath already has the flow. */
  migrateIfAbsent(table: FlowTable): boolean {
    return this.#migrate(table, MODE.ifAbsent);
  }

  #migrate(table: FlowTable, mode: number): boolean {
    const { size } = this.layout;
    this.flow.setUint32(size + AT.half, table === 'half_open' ? 1 : 0, true);
    this.flow.setUint32(size + AT.mode, mode, true);
    this.#run();
    return this.flow.getUint32(size + AT.migrated, true) !== 0;
  }

  /**
   * Must be called directly after `migrate`. Migrates the delta: the packets that the earlier datapath has
   * counted for the same flow since then, and a changed state. `read` must write the present state of the
   * flow to its argument `flow`.
   */
  migrateDelta(read: (flow: DataView) => void): void {
    const { size } = this.layout;
    new Uint8Array(this.#earlier.buffer).set(new Uint8Array(this.flow.buffer, 0, size));
    read(this.flow);
    const stateAndFlags = this.#field('state').offset;
    const earlier = this.#earlier.getUint16(stateAndFlags, true);
    let changed = this.flow.getUint16(stateAndFlags, true) !== earlier;
    for (const { now, before } of RUNNING) {
      for (const side of [0, 1]) {
        const at = this.#field(now).offset + 4 * side;
        const was = this.#earlier.getUint32(at, true);
        changed ||= this.flow.getUint32(at, true) !== was;
        this.flow.setUint32(this.#field(before).offset + 4 * side, was, true);
      }
    }
    if (!changed) return;
    for (const total of TOTALS) {
      for (const side of [0, 1]) this.flow.setBigUint64(this.#field(total).offset + 8 * side, 0n, true);
    }
    this.flow.setUint32(size + AT.mode, MODE.delta, true);
    this.flow.setUint32(size + AT.stateAndFlags, earlier, true);
    this.#run();
  }

  #run(): void {
    if (this.#program.run() !== 0)
      throw new Error('migrate a flow to the new map: the BPF program that inserts it failed');
  }

  #field(name: string): Field {
    const field = this.layout.fields[name];
    if (field === undefined) throw new RangeError(`migrate flows: the old layout of a flow has no field ${name}`);
    return field;
  }
}
