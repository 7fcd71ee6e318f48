import { afterEach, beforeEach, expect, test } from 'vitest';
import { FLOW_BYTES, FLOW_OFFSETS, FLOW_STRUCT_BYTES } from '#dataplane/abi/flow.js';
import { describeMap } from '#dataplane/loader/bpf-fd.js';
import { FlowMigration } from '#dataplane/upgrade/flow-migration.js';
import { withTally } from '#dataplane/upgrade/struct-conversion.js';
import { compile } from '#policy/compile/compile.js';
import { group, packet, policy, rule } from '#test/policy/sample.js';
import { back } from './conversation.js';
import { TCP } from './frame.js';
import { type Loaded, loadForTest, PASSED } from './loaded.js';

const web = packet();
const allowed = compile(policy([group(['10.0.0.0/8'], [rule({ id: 'web', protocol: 6 })])]));

let before: Loaded;
let after: Loaded;
let migration: FlowMigration;
beforeEach(() => {
  // The datapath `before` has no flow limit per source, like builds with a map layout version of at most 5.
  // The datapath `after` has the limit.
  [before, after] = [loadForTest(), loadForTest({ flowCapacity: 1_024, flowShare: 0.125, migrates: true })];
  for (const kernel of [before, after]) kernel.activate(allowed);
  const [flow, tally] = (['flows', 'tallies'] as const).map((name) => describeMap(after.object.mapFd(name)).value);
  if (flow === undefined || tally === undefined) throw new Error('there is no table of flows');
  migration = new FlowMigration(after.object, withTally(flow, tally));
});
afterEach(() => {
  before.close();
  after.close();
});

/** Copies the current bytes of the only flow in the datapath `before` into `into`. */
function read(into: DataView): void {
  before.sweep();
  const [record] = before.records();
  if (record === undefined) throw new Error('the flow is gone');
  new Uint8Array(into.buffer, into.byteOffset, FLOW_BYTES).set(record);
}

function establish(kernel: Loaded): void {
  for (const [given, tcpFlags] of [
    [web, TCP.syn],
    [back(web), TCP.syn | TCP.ack],
    [web, TCP.ack],
  ] as const) {
    kernel.runPacket(given, { tcpFlags });
  }
}

function establishAndMigrate(): void {
  establish(before);
  read(migration.flow);
  expect(migration.migrate('flows')).toBe(true);
}

test('the migration of a flow (its copy into the BPF maps of a new datapath) adds the state and packet counts that changed in the earlier datapath after the first copy', () => {
  establishAndMigrate();
  expect(after.flowsIn('flows')).toMatchObject([{ state: 'tcp_established', packets: [2n, 1n] }]);
  before.runPacket(web, { tcpFlags: TCP.fin | TCP.ack, payloadBytes: 0 });
  before.runPacket(back(web), { tcpFlags: TCP.ack, acknowledgment: 1, payloadBytes: 0 });
  migration.migrateDelta(read);
  expect(after.flowsIn('flows')).toMatchObject([{ state: 'tcp_half_closed', packets: [3n, 2n] }]);
});

test('a FIN that the earlier datapath passed before the migration half closes the flow in the new datapath', () => {
  establishAndMigrate();
  before.runPacket(web, { tcpFlags: TCP.fin | TCP.ack, payloadBytes: 0 });
  migration.migrateDelta(read);
  expect(after.flowsIn('flows')).toMatchObject([{ state: 'tcp_half_closed', packets: [3n, 1n] }]);
  after.runPacket(back(web), { tcpFlags: TCP.fin | TCP.ack, acknowledgment: 1, payloadBytes: 0 });
  after.runPacket(web, { tcpFlags: TCP.ack, sequence: 1, acknowledgment: 1, payloadBytes: 0 });
  expect(after.flowsIn('flows')).toMatchObject([{ state: 'tcp_closing', packets: [4n, 2n] }]);
});

test('the second copy of a migrated flow keeps a state that changed in the new datapath, and adds the packet counts of both datapaths', () => {
  establishAndMigrate();
  before.runPacket(web, { tcpFlags: TCP.fin | TCP.ack });
  after.runPacket(back(web), { tcpFlags: TCP.rst });
  migration.migrateDelta(read);
  expect(after.flowsIn('flows')).toMatchObject([{ state: 'tcp_reset', packets: [3n, 2n] }]);
});

test.each([
  ['is new in the new datapath', false, [2n, 1n], [3n, 1n]],
  ['exists in the new datapath', true, [4n, 2n], [5n, 2n]],
])(
  'a migrated flow that %s has the right packet counts if a flush of counters comes between the reads of counters and statistics',
  (_, exists, first, second) => {
    establish(before);
    if (exists) establish(after);
    read(migration.flow);
    const counters = new Uint8Array(migration.flow.buffer, migration.flow.byteOffset, FLOW_STRUCT_BYTES).slice();
    before.runPacket(web, { tcpFlags: TCP.ack });
    read(migration.flow);
    new Uint8Array(migration.flow.buffer, migration.flow.byteOffset).set(counters);
    expect(migration.migrate('flows')).toBe(!exists);
    expect(after.flowsIn('flows')).toMatchObject([{ packets: first }]);
    migration.migrateDelta(read);
    expect(after.flowsIn('flows')).toMatchObject([{ packets: second }]);
    // `before` has counted its packets as hits in its own map, so `after` counts only its own packets.
    after.sweep();
    const hits = after.trafficStatistics.hits({ groups: [], rules: [], unused: undefined, from: 0, limit: 10 });
    expect(hits?.items.find(({ decider }) => decider.kind === 'rule')?.packets).toBe(exists ? 3n : 0n);
  },
);

test('migrated flows count towards the flow limit of their source', () => {
  const from = (sourcePort: number, source = web.source) => ({ ...web, source, sourcePort });
  const establish = (kernel: Loaded, given: typeof web): boolean =>
    [[given, TCP.syn] as const, [back(given), TCP.syn | TCP.ack] as const, [given, TCP.ack] as const].every(
      ([packet, tcpFlags]) => kernel.runPacket(packet, { tcpFlags }).returned === PASSED,
    );
  for (let port = 1; port <= 600; port++) establish(before, from(port));
  for (const record of before.records()) {
    new Uint8Array(migration.flow.buffer, migration.flow.byteOffset, FLOW_BYTES).set(record);
    expect(migration.migrate('flows')).toBe(true);
  }
  expect(after.flowsIn('flows')).toHaveLength(600);
  expect(after.runPacket(from(1), { tcpFlags: TCP.ack }).returned).toBe(PASSED);
  expect(establish(after, from(601))).toBe(false);
  expect(after.counted().drop_flow_share).toBeGreaterThan(0);
  expect(establish(after, from(601, 0x0a05_0505))).toBe(true);
});

test('a flow that was migrated while its counters were being flushed can be flushed in the new datapath', () => {
  before.runPacket(web);
  read(migration.flow);
  const FOLDING = 128;
  migration.flow.setUint8(FLOW_OFFSETS.flags, migration.flow.getUint8(FLOW_OFFSETS.flags) | FOLDING);
  expect(migration.migrate('half_open')).toBe(true);
  after.runPacket(web);
  expect(after.flowIn('half_open')).toMatchObject({ packets: [2n, 0n] });
  const words = new Uint32Array(after.records()[0]?.slice().buffer ?? new ArrayBuffer(0));
  expect(words[FLOW_OFFSETS.folded_packets / 4]).toBe(2);
});

test('the BPF map of flows has another field name for 15-bit TCP sequence numbers than earlier builds had for 16-bit numbers', () => {
  const { value } = describeMap(after.object.mapFd('flows'));
  expect(Object.keys(value?.fields ?? {})).toContain('tcp_numbers');
  expect(Object.keys(value?.fields ?? {})).not.toContain('acknowledged');
});
