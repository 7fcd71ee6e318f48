import type { Field, StructLayout } from '#dataplane/abi/btf.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { TestRun } from '#libc/test-run.js';
import type { FlowTable } from './flow-conversion.js';

/**
 * Offsets of the fields of `struct migrate_flow_request` after the flow and its tally, in bytes from the end
 * of the tally.
 */
const AT = { half: 0, carried: 4, again: 8, vital: 12, bytes: 16 } as const;
const [AGAIN, MISSING] = [1, 2];
const RUNNING = [
  { now: 'packets', before: 'folded_packets' },
  { now: 'bytes', before: 'folded_bytes' },
] as const;
const TOTALS = ['total_packets', 'total_bytes'] as const;

/** Copies flows of an earlier datapath into the flow table of this datapath, one flow at a time. */
export class FlowMigration {
  /**
   * The input buffer. Before each call of `carry`, the caller must write a flow to it: a `struct flow`,
   * followed by its `struct tally`.
   */
  readonly flow: DataView;
  readonly #migration: TestRun;
  readonly #earlier: DataView;

  constructor(
    object: BpfObject,
    readonly layout: StructLayout,
  ) {
    const request = new Uint8Array(layout.size + AT.bytes);
    this.flow = new DataView(request.buffer);
    this.#earlier = new DataView(new ArrayBuffer(layout.size));
    this.#migration = new TestRun(object.programFd('weir_migrate_flow'), undefined, request, undefined);
  }

  /**
   * Adds the flow in the buffer `flow` to the flow table of this datapath. Returns false if the flow was not
   * added: the table is full, the flow already exists there, or it has a loopback address. If the flow is
   * established in both datapaths, the counts in the buffer are added to the existing flow.
   */
  carry(table: FlowTable): boolean {
    return this.#carry(table, 0);
  }

  /** Like `carry`, but does nothing if the flow already exists in this datapath. */
  carryMissing(table: FlowTable): boolean {
    return this.#carry(table, MISSING);
  }

  #carry(table: FlowTable, again: number): boolean {
    const { size } = this.layout;
    this.flow.setUint32(size + AT.half, table === 'half_open' ? 1 : 0, true);
    this.flow.setUint32(size + AT.again, again, true);
    this.#run();
    return this.flow.getUint32(size + AT.carried, true) !== 0;
  }

  /**
   * Must be called directly after `carry`. Adds the packets that the earlier datapath has counted for the
   * same flow since then, and takes over a changed state. `read` must write the present state of the flow to
   * its argument `flow`.
   */
  carryAgain(read: (flow: DataView) => void): void {
    const { size } = this.layout;
    new Uint8Array(this.#earlier.buffer).set(new Uint8Array(this.flow.buffer, 0, size));
    read(this.flow);
    const vital = this.#field('state').offset;
    const earlier = this.#earlier.getUint16(vital, true);
    let changed = this.flow.getUint16(vital, true) !== earlier;
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
    this.flow.setUint32(size + AT.again, AGAIN, true);
    this.flow.setUint32(size + AT.vital, earlier, true);
    this.#run();
  }

  #run(): void {
    if (this.#migration.run() !== 0) throw new Error('migrate a flow: the program failed');
  }

  #field(name: string): Field {
    const field = this.layout.fields[name];
    if (field === undefined) throw new RangeError(`flows have no ${name}`);
    return field;
  }
}
