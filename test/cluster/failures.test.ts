import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { collect } from '#cluster/collector.js';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { under } from '#cluster/etcd/etcd-types.js';
import { ClusterKeys } from '#cluster/keys.js';
import { detach } from '#dataplane/thread/detach.js';
import { Bodies } from '#store/bodies.js';
import { decodeJson, encodeJson } from '#store/json-value.js';
import { CERTIFICATE } from '#test/api/certificate.js';
import { Injector } from '#test/chaos/injector.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { EtcdCluster } from './etcd-cluster.js';
import { ClusterNode, created, type Reply } from './node-cluster.js';

const PIN_PATH = `/sys/fs/bpf/weir-failures-${process.pid}`;
const HOUR_MS = 3_600_000;
const MIB = 1024 * 1024;
const keys = new ClusterKeys('/weir');
const SOON = { withinMs: 5_000 };
/** A module that lets a process see another time. */
const SKEW = `const { Date: Real } = globalThis;
globalThis.Date = class extends Real {
  constructor(...words) { super(...(words.length === 0 ? [Real.now() + ${HOUR_MS}] : words)); }
  static now() { return Real.now() + ${HOUR_MS}; }
};`;

const policyOf = (...addresses: string[]) => ({
  default_policy: 'deny',
  source_groups: [
    {
      id: 'lan',
      mode: 'enforce',
      sources: { cidrs: ['10.0.0.0/8'] },
      rules: addresses.map((ip, index) => ({
        id: `r${index}`,
        action: 'allow',
        match: { dst_ips: [ip], proto: 'tcp', dst_ports: [443] },
      })),
    },
  ],
});
const put = (node: ClusterNode, address: string, headers: Readonly<Record<string, string>> = {}, query = '') =>
  node.request('PUT', `/api/v1/policy${query}`, policyOf(address), headers);
const textAt = async (node: ClusterNode): Promise<string> => (await node.request('GET', '/api/v1/policy')).text;
const codeOf = ({ status, text }: Reply): readonly unknown[] => [status, /urn:weir:error:(\w+)/.exec(text)?.[1]];

let etcd: EtcdCluster;
let client: EtcdClient;
let leave: () => void;
/** `small` has a dataplane with a small table, and its data on a small disk. The clock of `early` is an hour ahead. */
let plain: ClusterNode;
let small: ClusterNode;
let early: ClusterNode;
let skewed: Readonly<Record<string, string>>;
const all = () => [plain, small, early];

/** Waits until all nodes have the policy in force. */
async function allHave(address: string, withinMs = 5_000): Promise<void> {
  for (const until = Date.now() + withinMs; ; await pause(20)) {
    const read = await Promise.all(all().map(textAt));
    if (read.every((text) => text.includes(`"${address}"`))) return;
    if (Date.now() > until) throw new Error(`not all nodes have ${address}: ${read.join('\n')}`);
  }
}

/** The data folder of `small`: a file system of its own. */
const disk = () => join(small.folder, 'data');
function fillDisk(): void {
  for (const [name, size] of [
    ['large', MIB],
    ['little', 4_096],
  ] as const)
    try {
      for (let file = 0; ; file++) writeFileSync(join(disk(), 'ballast', `${name}-${file}`), Buffer.alloc(size));
    } catch {
      // The disk is full.
    }
}

beforeAll(async () => {
  etcd = await EtcdCluster.start('fail', 1, [`--quota-backend-bytes=${16 * MIB}`]);
  leave = enterNamespace(etcd.namespace);
  execFileSync('ip', ['link', 'add', 'policed0', 'type', 'veth', 'peer', 'name', 'policed1']);
  const sealKey = join(etcd.folder, 'seal.key');
  writeFileSync(sealKey, randomBytes(32).toString('base64'), { mode: 0o600 });
  writeFileSync(join(etcd.folder, 'skew.mjs'), SKEW);
  skewed = { NODE_OPTIONS: `--import=${join(etcd.folder, 'skew.mjs')}` };
  const shared = { cluster: { seal_key_file: sealKey } };
  const dataplane = { interfaces: ['policed0'], program_capacity: 8_192, pin_path: PIN_PATH };
  plain = new ClusterNode('n1', 0, etcd, shared);
  small = new ClusterNode('n2', 1, etcd, { ...shared, dataplane });
  mkdirSync(disk());
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=32m,mode=700', 'tmpfs', disk()]);
  mkdirSync(join(disk(), 'ballast'));
  early = new ClusterNode('n3', 2, etcd, shared);
  client = new EtcdClient(etcd.options);
  plain.start();
  small.start();
  early.start(skewed);
  await created(all());
}, 90_000);
afterAll(async () => {
  for (const node of all()) await node?.end();
  client?.close();
  detach(PIN_PATH);
  if (small !== undefined) execFileSync('umount', [disk()]);
  leave?.();
  await etcd?.remove();
});

/** GET operations whose response is about the node that responds, or about its traffic. */
const OF_NODE =
  /^\/(health|ready|metrics|openapi)|\/(stats|debug|flows|hits|dns-cache|audit|wiretap|explain|impact|status|stream)\b/;

describe('each GET operation on shared state', () => {
  test('has the same response at each of three nodes', async () => {
    await put(plain, '10.1.0.1');
    const body = { mode: 'enforce', policy: { default_policy: 'deny', source_groups: [] } };
    await small.request('PUT', '/api/v1/policies/by-name/second?activate=false', body);
    await put(early, '10.1.0.2');
    const integration = {
      kind: 'kubernetes',
      api_server_url: 'https://192.0.2.1:6443',
      ca_cert_pem: CERTIFICATE,
      service_account_token: 'a-secret-token',
    };
    const made = await early.request('POST', '/api/v1/integrations', { name: 'prod', ...integration });
    expect([made.status, made.text]).toEqual([201, expect.any(String)]);
    expect((await plain.request('POST', '/api/v1/settings/tls-intercept-ca/generate')).status).toBe(200);
    await small.request('PUT', '/api/v1/settings/performance-mode', { enabled: true });
    await early.request('POST', '/api/v1/tokens', { subject: 'ci', role: 'readonly' });
    await allHave('10.1.0.2');
    await pause(500);

    const { paths } = (await plain.request('GET', '/openapi/service-v1.json')).body as {
      readonly paths: Readonly<Record<string, { readonly get?: unknown }>>;
    };
    const { items } = (await plain.request('GET', '/api/v1/policies')).body as { readonly items: { id: string }[] };
    const values = { id: items[0]?.id ?? '', name: 'prod', group_id: 'lan' };
    const shared = Object.entries(paths).filter(([path, { get }]) => get !== undefined && !OF_NODE.test(path));
    const asked: string[] = [];
    for (const [path] of shared) {
      const name = path.includes('policies/by-name') ? 'second' : values.name;
      const url = path.replace(/\{(\w+)\}/g, (_, key: string) => ({ ...values, name })[key as 'id'] ?? `no ${key}`);
      const read = await Promise.all(all().map((node) => node.request('GET', url)));
      const shown = read.map(({ status, text, headers }) =>
        // The cluster names the node that responds.
        [status, headers.get('etag'), text.replace(/"node_id":"n\d"/, '')].join(' '),
      );
      expect([url, new Set(shown).size, shown[0]?.slice(0, 3)]).toEqual([url, 1, '200']);
      asked.push(path);
    }
    console.log(asked.join('\n'));
    expect(asked.length).toBeGreaterThan(8);
  });
});

describe('a node whose clock is an hour ahead', () => {
  test('takes part, and its writes follow each other like those of other nodes', async () => {
    const revisionIn = (text: string) => Number(/"revision":(\d+)/.exec(text)?.[1]);
    const writes: Reply[] = [];
    for (const [index, node] of [plain, early, plain].entries()) {
      expect((await put(node, `10.2.0.${index}`)).status).toBe(200);
      writes.push(await node.request('GET', '/api/v1/policies/by-name/default'));
    }
    await allHave('10.2.0.2');
    const times = writes.map(({ text }) => Date.parse(/"updated_at":"([^"]+)"/.exec(text)?.[1] ?? ''));
    expect((times[1] ?? 0) - (times[2] ?? 0)).toBeGreaterThan(HOUR_MS - 60_000);
    const [first = 0, ...later] = writes.map(({ text }) => revisionIn(text));
    expect(later).toEqual([first + 1, first + 2]);
    for (const node of all()) await node.takesPart();
  });
});

describe('a policy that one node cannot hold', () => {
  const large = () =>
    policyOf(
      ...Array.from({ length: 30_000 }, (_, index) => `10.${100 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`),
    );

  test('is refused with 409, which names the node, the need and the limit, and changes nothing', async () => {
    const before = await textAt(plain);
    const refused = await plain.request('PUT', '/api/v1/policy', large());
    expect(codeOf(refused)).toEqual([409, 'member_refused']);
    expect((refused.body as { readonly detail: string }).detail).toMatch(
      /^the node n2 cannot hold the policy: .*\d+ .*8192/,
    );
    expect(await Promise.all(all().map(textAt))).toEqual([before, before, before]);
    expect((await put(plain, '10.3.0.1')).headers.get('weir-nodes')).toBe('3/3');
  });

  test('leaves that node at the policy before, if it is written without a rehearsal, until a policy fits', async () => {
    const generation = async () =>
      Number((await small.request('GET', '/api/v1/cluster')).text.match(/"generation":(\d+)/)?.[1]);
    const before = await generation();
    expect((await plain.request('PUT', '/api/v1/policy?rehearse=false', large())).status).toBe(200);
    const { detail } = await small.until('policy_replication', 'lagging');
    expect(detail).toContain(`generation ${before} is in force`);
    expect([await generation(), (await small.check('policy_ready')).detail]).toEqual([
      before,
      expect.stringContaining('8192'),
    ]);
    expect((await put(early, '10.3.0.2')).status).toBe(200);
    await small.until('policy_replication', 'in_step');
    await allHave('10.3.0.2');
  }, 30_000);
});

describe('a policy that this build cannot read, of a node with a newer build', () => {
  test('is refused by the vote of each node, so that the write gets 409', async () => {
    const { items } = (await plain.request('GET', '/api/v1/policies')).body as {
      readonly items: { active: boolean }[];
    };
    const text = JSON.stringify({ default_policy: 'deny', source_groups: [], field_of_the_future: true });
    const { sha256, operations } = await new Bodies(createMemoryStore()).whole(Buffer.from(text));
    const bodies = operations.map((each) => [
      each.key,
      'value' in each ? Buffer.from(each.value).toString('base64') : '',
    ]);
    const record = items.find(({ active }) => active);
    const proposal = { generation: 999, record, bodySha256: sha256, bodies: Object.fromEntries(bodies) as object };
    const turn = { type: 'put', key: keys.turn('t'), value: encodeJson({ node: 'newer', proposal }) } as const;
    await client.transact({ when: [], apply: [turn] }, SOON);
    const votes = async () =>
      (await client.range(keys.votesFor('newer'), SOON)).entries
        .map(({ value }) => decodeJson<{ node: string; refusal: { code: string } | null }>(value))
        .map(({ node, refusal }) => `${node} ${refusal?.code ?? 'staged'}`);
    await expect.poll(votes).toEqual(['n1', 'n2', 'n3'].map((node) => `${node} invalid_policy`));
    await client.transact({ when: [], apply: [{ type: 'delete', key: keys.turn('t') }] }, SOON);
    expect((await put(plain, '10.3.1.1')).status).toBe(200);
  });
});

describe('a write whose turn ends before its commit', () => {
  /** Ends the turn of a write at `plain`, which waits for the vote of a frozen node. Calls `act` afterwards. */
  async function disturbed(write: Promise<Reply>, act: () => Promise<unknown> = async () => {}): Promise<Reply> {
    early.signal('SIGSTOP');
    await pause(400);
    etcd.etcdctl('del', '--prefix', '/weir/shared/turn/');
    await act();
    return write.finally(() => early.signal('SIGCONT'));
  }

  test('is prepared again on the newest policy, and then succeeds or is refused with 412', async () => {
    expect((await put(plain, '10.4.0.1')).status).toBe(200);
    const etag = (await plain.request('GET', '/api/v1/policy')).headers.get('etag') ?? '';
    early.signal('SIGSTOP');
    const write = disturbed(put(plain, '10.4.0.2', { 'if-match': etag }), async () => {
      expect((await put(small, '10.4.0.3', {}, '?rehearse=false')).status).toBe(200);
    });
    expect(codeOf(await write)).toEqual([412, 'precondition_failed']);
    await early.takesPart();
    early.signal('SIGSTOP');
    const repeated = await disturbed(put(plain, '10.4.0.4'));
    expect([repeated.status, repeated.headers.get('weir-warnings')]).toEqual([200, expect.any(String)]);
    await early.takesPart();
    await allHave('10.4.0.4');
  }, 40_000);
});

describe('a node that was away', () => {
  test('follows although etcd was compacted meanwhile, and takes over its id before its old lease ends', async () => {
    await early.end();
    expect((await put(plain, '10.5.0.1', {}, '?rehearse=false')).status).toBe(200);
    await etcd.compact();
    expect((await put(plain, '10.5.0.2', {}, '?rehearse=false')).status).toBe(200);
    await etcd.compact();
    early.start(skewed);
    await early.serves();
    const seen = new Set<string>();
    for (const until = Date.now() + 10_000; Date.now() < until && !seen.has('following') && !seen.has('leading'); )
      seen.add((await early.check('cluster')).state);
    expect([...seen].filter((state) => ['refused', 'cut_off'].includes(state))).toEqual([]);
    await early.takesPart();
    await allHave('10.5.0.2');
  }, 30_000);

  test('is refused if another node with its id and another data folder is a member', async () => {
    const second = new ClusterNode('n4', 3, etcd, {
      node: { id: 'n3', data_dir: join(etcd.folder, 'n4', 'data') },
    });
    second.start();
    try {
      await second.serves();
      const { detail } = await second.until('cluster', 'refused');
      expect(detail).toMatch(/the node at 127[.]0[.]0[.]1:9083 has the id n3 since .*each node needs an id of its own/);
      expect((await put(second, '10.5.0.3')).status).toBe(503);
      await early.takesPart();
      expect((await put(early, '10.5.0.4')).status).toBe(200);
    } finally {
      await second.end();
    }
    await allHave('10.5.0.4');
  }, 30_000);
});

describe('an etcd that runs for a fifth of the time', () => {
  test('delays a write, and does not make it fail', async () => {
    const slow = new Injector(etcd, []).run([{ at: 0, kind: 'slow_member', target: 'm1', forMs: 4_000 }]);
    await pause(500);
    const reply = await put(plain, '10.6.0.1');
    expect([reply.status, reply.text]).toEqual([200, expect.stringContaining('10.6.0.1')]);
    await slow;
    await allHave('10.6.0.1');
    for (const node of all()) await node.takesPart();
  }, 30_000);
});

describe('an etcd whose database is full', () => {
  test('makes writes fail with store_full, is shown by the check cluster, and lets the collector remove parts', async () => {
    const putAt = (key: string, value: Buffer) =>
      client.transact({ when: [], apply: [{ type: 'put', key, value }] }, SOON);
    await putAt('/weir/part/00', Buffer.from('garbage'));
    const filling = async () => {
      for (let file = 0; ; file++) await putAt(`/weir/ballast/${file}`, randomBytes(MIB));
    };
    await expect(filling()).rejects.toMatchObject({ code: 'no_space' });
    const refused = await put(plain, '10.7.0.1');
    expect(codeOf(refused)).toEqual([503, 'store_full']);
    const settings = await small.request('PUT', '/api/v1/settings/performance-mode', { enabled: false });
    expect(codeOf(settings)).toEqual([503, 'store_full']);
    expect(await plain.until('cluster', 'full')).toMatchObject({ ok: false });
    expect((await plain.request('GET', '/metrics')).text).toContain('weir_cluster_etcd_full 1');
    expect([await textAt(plain), (await plain.check('policy_replication')).ok]).toEqual([await textAt(small), true]);

    const collected = await collect(client, keys, { key: '/weir/none', createRevision: 0n });
    expect([collected.isComplete, collected.removed > 0]).toEqual([true, true]);
    await client.transact({ when: [], apply: [{ type: 'delete_range', range: under('/weir/ballast/') }] }, SOON);
    await etcd.compact();
    etcd.etcdctl('defrag');
    etcd.etcdctl('alarm', 'disarm');
    for (const node of all()) await node.takesPart();
    expect((await put(plain, '10.7.0.2')).status).toBe(200);
    await allHave('10.7.0.2');
  }, 60_000);
});

describe('a node whose disk is full', () => {
  const shows = async (part: string): Promise<void> => {
    for (
      const until = Date.now() + 10_000;
      !(await small.check('policy_replication')).detail.includes(part);
      await pause(50)
    )
      if (Date.now() > until) throw new Error((await small.check('policy_replication')).detail);
  };

  test('puts committed policies in force, says that it does not keep them, and refuses writes of its own', async () => {
    fillDisk();
    for (let octet = 1; octet <= 20; octet++) expect((await put(plain, `10.8.0.${octet}`)).status).toBe(200);
    await allHave('10.8.0.20');
    expect(await small.check('policy_replication')).toMatchObject({
      ok: true,
      detail: expect.stringContaining('not kept here'),
    });
    expect(codeOf(await put(small, '10.8.1.1'))).toEqual([503, 'store_unavailable']);

    await small.end();
    small.start();
    await small.serves();
    await small.takesPart();
    await allHave('10.8.0.20');

    rmSync(join(disk(), 'ballast'), { recursive: true });
    await small.end();
    small.start();
    await small.serves();
    await small.takesPart();
    expect((await small.check('policy_replication')).detail).not.toContain('not kept here');
    expect((await put(small, '10.8.1.2')).status).toBe(200);
    await allHave('10.8.1.2');
  }, 60_000);

  test('keeps all policies as soon as the disk has space again', async () => {
    mkdirSync(join(disk(), 'ballast'));
    fillDisk();
    for (let octet = 1; octet <= 20; octet++) expect((await put(plain, `10.8.2.${octet}`)).status).toBe(200);
    await shows('not kept here');
    rmSync(join(disk(), 'ballast'), { recursive: true });
    await shows('is in force');
    for (
      const until = Date.now() + 10_000;
      (await small.check('policy_replication')).detail.includes('not kept');
      await pause(50)
    )
      if (Date.now() > until) throw new Error('the disk has space, and the node does not store the policies');
    for (const { name } of etcd.members) await etcd.signal(name, 'SIGKILL');
    await small.end();
    small.start();
    await small.serves();
    expect(await textAt(small)).toContain('10.8.2.20');
    for (const { name } of etcd.members) etcd.startMember(name);
    for (const node of all()) await node.takesPart();
  }, 60_000);
});
