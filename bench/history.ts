import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { PolicyRecord } from '#contracts/policy/policy-record.js';
import { parseStrictJson } from '#policy/document/json.js';
import { outlineOf, replaceGroup } from '#policy/document/outline.js';
import { openRocksDbStore } from '#store/disk/rocksdb-store.js';
import type { HistoryBounds } from '#store/policies/history-bounds.js';
import { lastGoodFile } from '#store/policies/last-good.js';
import { loadPolicyStore } from '#store/policies/policy-store.js';
import { createRig, type NodeRig } from '#test/e2e/rig.js';
import { Random } from '#test/seed.js';
import type { Bench, Row } from './bench.js';
import { LONG_TIMEOUT, manyRules } from './policy-write.js';

const RULES = 100_000;
const EACH = 10;
const REVISIONS = 10_000;
const READS = 11;
const WRITES = 5;
const UNBOUNDED: HistoryBounds = { revisions: 1_000_000, bytes: 2 ** 40 };
const DEFAULT = { revisions: 1_000, bytes: 2 ** 30 };
const label = `${REVISIONS.toLocaleString('en')} revisions of ${RULES.toLocaleString('en')} rules`;

/** Returns the size of all files in a folder, in bytes. */
async function sizeOf(folder: string): Promise<number> {
  const names = await readdir(folder);
  const sizes = await Promise.all(names.map(async (name) => (await stat(join(folder, name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}

async function timed<T>(work: () => Promise<T>): Promise<{ readonly ms: number; readonly result: T }> {
  const started = performance.now();
  const result = await work();
  return { ms: performance.now() - started, result };
}

async function median(rounds: number, work: (round: number) => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) times.push((await timed(() => work(round))).ms);
  return times.sort((one, other) => one - other)[rounds >> 1] ?? 0;
}

/** Opens the policies of a node that does not run. */
async function policiesIn(dataDir: string, bounds: HistoryBounds) {
  const kv = await openRocksDbStore(join(dataDir, 'store'));
  const lastGood = lastGoodFile(join(dataDir, 'last-good.policy'));
  return { kv, policies: await loadPolicyStore(kv, lastGood, () => {}, null, bounds) };
}

/**
 * Writes revisions to the store of a node that does not run, until its policy has `REVISIONS`. Each changes
 * one port of a random group, as the write of one group does. Returns the time of one commit in milliseconds.
 */
async function fill(dataDir: string): Promise<number> {
  const { kv, policies } = await policiesIn(dataDir, UNBOUNDED);
  const stored = await policies.active();
  if (stored === null) throw new Error('no policy is active');
  const json = parseStrictJson(stored.body, ['source_groups']);
  if (!json.ok) throw new Error('the stored policy is no JSON');
  const groups = (json.value as ReturnType<typeof manyRules>).source_groups;
  let outline = outlineOf(stored.body, true, json.list, 0);
  const random = new Random(1);
  const started = performance.now();
  for (let revision = stored.record.revision + 1; revision <= REVISIONS; revision++) {
    const index = random.between(1, groups.length - 1);
    const { rules = [], ...group } = groups[index] ?? {};
    const port = random.between(1, 60_000);
    const changed = rules.map((rule, at) => (at > 0 ? rule : { ...rule, match: { ...rule.match, dst_ports: [port] } }));
    const change = replaceGroup(outline, index, Buffer.from(JSON.stringify({ ...group, rules: changed })));
    outline = change.outline;
    const now = new Date().toISOString();
    const record: PolicyRecord = { ...stored.record, revision, updated_at: now };
    await policies.commit({
      put: { record, edit: { ...change.edit, revision: revision - 1 } },
      origin: {
        via: 'group_write',
        source_group: `g${index - 1}`,
        comment: `CHG-${revision}: a port of the group`,
        size: {
          groups: { added: 0, changed: 1, removed: 0 },
          rules: { added: 0, changed: 1, removed: 0 },
          other: false,
        },
      },
      generation: revision,
    });
  }
  const ms = (performance.now() - started) / REVISIONS;
  await kv.close();
  return ms;
}

/** Measures the routes of the history at a running node. */
async function measure(rig: NodeRig, id: string): Promise<Row[]> {
  const ask = async (method: string, path: string, body?: unknown) => {
    const reply = await rig.node.request(method, `/api/v1/policies/${id}/${path}`, body);
    if (reply.status !== 200) throw new Error(`${method} ${path}: ${reply.status} ${reply.text.slice(0, 400)}`);
    return reply;
  };
  const page = await median(READS, () => ask('GET', 'history'));
  const all = await timed(async () => {
    let found = 0;
    for (let cursor = ''; ; ) {
      const { body } = await ask('GET', `history?limit=500${cursor}`);
      const { items, next_cursor: next } = body as { items: unknown[]; next_cursor: string | null };
      found += items.length;
      if (next === null) return found;
      cursor = `&cursor=${next}`;
    }
  });
  if (all.result !== REVISIONS) throw new Error(`the history has ${all.result} revisions`);
  const random = new Random(2);
  const show = await median(READS, () => ask('GET', `history/${random.between(1, REVISIONS)}`));
  const first = await timed(() => ask('POST', 'rollback', { revision: 1 }));
  if ((await rig.udp(80)) !== 'pong 1') throw new Error('the policy of the first revision is not in force');
  const again = await median(WRITES, () => ask('POST', 'rollback', { revision: random.between(1, REVISIONS) }));
  const neighbour = await median(WRITES, (round) => ask('POST', 'rollback', { revision: REVISIONS - round }));
  const documents = [80, 81].map((port) => JSON.stringify(manyRules(RULES, EACH, port)));
  const write = await median(WRITES, (round) => rig.put(documents[round % 2]));
  return [
    { what: `${label}: the first page of 50`, value: page, unit: 'ms', atMost: 50 },
    { what: `${label}: all pages of 500`, value: all.ms, unit: 'ms' },
    { what: `${label}: a random revision with its document`, value: show, unit: 'ms' },
    {
      what: `${label}: rollback to the first one until enforced, the first after a restart`,
      value: first.ms,
      unit: 'ms',
    },
    { what: `${label}: rollback to a random one until enforced`, value: again, unit: 'ms' },
    { what: `${label}: a write of a whole document until enforced, to compare`, value: write, unit: 'ms' },
    { what: `${label}: rollback relative to this write`, value: again / write, unit: '×', atMost: 1.5 },
    { what: `${label}: rollback across one write until enforced`, value: neighbour, unit: 'ms' },
  ];
}

/** Measures the history of a large policy that is changed by writes of single groups. */
export const historyBench: Bench = {
  name: 'history',
  run: async () => {
    const policy = { ...LONG_TIMEOUT, history: { revisions: UNBOUNDED.revisions, bytes: '1TiB' } };
    const rig = await createRig('benchhist', [80], { sections: { policy } });
    const dataDir = join(rig.node.folder, 'data');
    const store = join(dataDir, 'store');
    const mib = async () => (await sizeOf(store)) / 2 ** 20;
    try {
      await rig.put(manyRules(RULES, EACH, 80));
      const { items } = (await rig.node.request('GET', '/api/v1/policies')).body as { items: { id: string }[] };
      await rig.node.end('SIGTERM');
      const one = await mib();
      const commit = await fill(dataDir);
      const many = await mib();
      await rig.node.restart();
      await rig.node.ready();
      const rows = await measure(rig, items[0]?.id ?? '');
      await rig.node.end('SIGTERM');
      const { kv, policies } = await policiesIn(dataDir, DEFAULT);
      const sweep = await timed(() => policies.sweep.sweep());
      const idle = await timed(() => policies.sweep.sweep());
      await kv.close();
      return [
        { what: `one revision of ${RULES.toLocaleString('en')} rules: size of the store`, value: one, unit: 'MiB' },
        { what: `${label}: size of the store`, value: many, unit: 'MiB' },
        {
          what: `${label}: size of a further revision`,
          value: ((many - one) * 1024) / (REVISIONS - 1),
          unit: 'KiB',
          atMost: 40,
        },
        { what: `${label}: commit of a further revision`, value: commit, unit: 'ms' },
        ...rows,
        { what: `${label}: sweep down to ${DEFAULT.revisions}`, value: sweep.ms, unit: 'ms' },
        { what: `${label}: removed revisions`, value: sweep.result.revisions, unit: '' },
        { what: `${label}: removed parts and lists of parts`, value: sweep.result.bodies, unit: '' },
        { what: `a sweep of ${DEFAULT.revisions} revisions that removes nothing`, value: idle.ms, unit: 'ms' },
        { what: `${label}: size of the store after the sweep`, value: await mib(), unit: 'MiB' },
      ];
    } finally {
      await rig.remove();
    }
  },
};
