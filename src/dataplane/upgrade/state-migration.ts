import { constants } from 'node:os';
import { COUNTER_INDEX } from '#contracts/datapath/datapath-numbers.js';
import { mapId } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject, MapName } from '#dataplane/loader/bpf-object.js';
import { readCounters } from '#dataplane/loader/counters.js';
import { batchesOf } from '#dataplane/loader/map-batches.js';
import type { PinnedMaps } from '#dataplane/object/map-set.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { FlowMigration } from './flow-migration.js';
import { pinnedFlows } from './pinned-flows.js';
import { conversion, flowConversion, withTally } from './struct-conversion.js';

/** Upper limit of the rounding error of `opened_ns`, the time at which a flow opened. */
const CLOCK_SLACK_NS = 100_000_000n;
const NOEXIST = 1;
const { E2BIG, EEXIST, ENOMEM } = constants.errno;

/**
 * Migrates flows, fragments and counters from the maps of an earlier datapath to the maps of this datapath.
 * Never overwrites an entry of this datapath. If an established flow already exists there, its counts are
 * added; a half-open flow or fragment that exists there is skipped.
 */
export class StateMigration {
  constructor(
    readonly from: PinnedMaps,
    readonly to: BpfObject,
    /** True if flows keep their verdicts, because both datapaths have the same compiled policy. */
    readonly samePolicy: boolean,
  ) {}

  /** Copies all flows and fragments of the earlier datapath to this one. */
  migrateEntries(): void {
    this.#migrateFlows();
    if (this.#differs('fragments')) this.#migrateFragments();
  }

  /**
   * Migrates the flows that the forward judge (netfilter program) of the earlier datapath has opened since
   * `migrateEntries` began, at `sinceNs`. May be called only when no BPF program opens flows in the old maps
   * any more.
   */
  migrateLateFlows(sinceNs: bigint): void {
    if (!this.#differs('flows')) return;
    const target = withTally(this.to.describe('flows').value, this.to.describe('tallies').value);
    const migration = new FlowMigration(this.to, target);
    const opened = target.fields.opened_ns?.offset ?? 0;
    for (const { table, layout, flows } of pinnedFlows(this.from)) {
      const convert = flowConversion(layout, target, this.samePolicy);
      for (const { view } of flows) {
        convert(view, 0, migration.flow, 0);
        // Skip older flows: they were migrated before. If such a flow is missing here, it has ended in this
        // datapath.
        if (migration.flow.getBigUint64(opened, true) + CLOCK_SLACK_NS >= sinceNs) migration.migrateIfAbsent(table);
      }
    }
  }

  /**
   * Adds the values of the earlier datapath's counters to the counters of this datapath. May be called only
   * when no BPF program counts in the old maps any more.
   */
  migrateCounters(): void {
    if (!this.#differs('counters')) return;
    for (const [index, { packets, bytes }] of readCounters(this.from.fd('counters')).entries()) {
      if (packets > 0n || bytes > 0n) this.#addToCounter(index, packets, bytes);
    }
  }

  #differs(name: MapName): boolean {
    return this.from.has(name) && this.from.id(name) !== mapId(this.to.mapFd(name));
  }

  #migrateFlows(): void {
    if (!this.#differs('flows')) return;
    const target = withTally(this.to.describe('flows').value, this.to.describe('tallies').value);
    const migration = new FlowMigration(this.to, target);
    let notMigrated = 0;
    for (const { table, layout, flows } of pinnedFlows(this.from)) {
      const convert = flowConversion(layout, target, this.samePolicy);
      for (const { view, reread } of flows) {
        convert(view, 0, migration.flow, 0);
        const isMigrated = migration.migrate(table);
        if (table === 'flows' && !isMigrated) notMigrated++;
        // If the earlier datapath handled a packet of this flow after the read, the packet changed only the
        // flow in the old map. Read the flow again and migrate the difference.
        if (reread()) migration.migrateDelta((into) => convert(view, 0, into, 0));
      }
    }
    // Weir computes the number of flows as opened minus closed flows. So count a flow that was not migrated
    // as closed.
    if (notMigrated > 0) this.#addToCounter(COUNTER_INDEX.flows_closed, BigInt(notMigrated), 0n);
  }

  #migrateFragments(): void {
    const [source, target] = [this.from.describe('fragments'), this.to.describe('fragments')];
    const convertKey = conversion(source.key, target.key);
    const convertValue = conversion(source.value, target.value);
    const key = new Uint8Array(target.keySize);
    const value = new Uint8Array(target.valueSize);
    for (const { count, keys, values } of batchesOf(this.from.fd('fragments'), source)) {
      for (let at = 0; at < count; at++) {
        convertKey(new DataView(keys.buffer), at * source.keySize, new DataView(key.buffer), 0);
        convertValue(new DataView(values.buffer), at * source.valueSize, new DataView(value.buffer), 0);
        insert(this.to.mapFd('fragments'), key, value);
      }
    }
  }

  #addToCounter(index: number, packets: bigint, bytes: bigint): void {
    // The offsets below are those of `struct migrate_count_request`.
    const request = new Uint8Array(24);
    const view = new DataView(request.buffer);
    view.setUint32(0, index, true);
    view.setBigUint64(8, packets, true);
    view.setBigUint64(16, bytes, true);
    const failed = new TestRun(this.to.programFd('weir_migrate_count'), undefined, request, undefined).run();
    if (failed !== 0) throw new Error(`migrate counter ${index} to the new map: the BPF program that adds it failed`);
  }
}

/** Adds an entry to a hash map. Returns false if the key already exists or the map is full. */
function insert(fd: number, key: Uint8Array, value: Uint8Array): boolean {
  const result = libbpf().bpf_map_update_elem(fd, key, value, NOEXIST);
  if (result === -EEXIST || result === -E2BIG || result === -ENOMEM) return false;
  if (result < 0) throw new KernelFailure('migrate an entry of the fragment map', -result);
  return true;
}
