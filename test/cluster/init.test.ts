import { expect, test } from 'vitest';
import { Cluster } from '#cluster/cluster.js';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import { under } from '#cluster/etcd/etcd-types.js';
import { createIntegrationStore } from '#store/settings/integration-store.js';
import { type Seal, sealWith } from '#store/settings/seal.js';
import type { KvStore } from '#store/store-types.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { NO_PEERS } from './etcd-cluster.js';
import { etcdOfFile } from './etcd-of-file.js';

const SECRET = 'a-secret-token';
const INTEGRATION = {
  name: 'prod',
  kind: 'kubernetes',
  api_server_url: 'https://192.0.2.1:6443',
  ca_cert_pem: 'pem',
  service_account_token: SECRET,
} as const;
const SEAL = sealWith(async () => Buffer.alloc(32, 7));

const started = etcdOfFile('init', 1);
const { stops } = started;

function clusterOver(kv: KvStore, prefix: string, seal: Seal | null): Cluster {
  const self = { id: 'n1', address: '127.0.0.1:1', version: '1.0.0' };
  const cluster = new Cluster(kv, { etcd: started.etcd.options, prefix, self, ...NO_PEERS, local: [], seal });
  stops.push(() => cluster.store.close());
  return cluster;
}

test('a node with a Kubernetes integration cannot create a cluster without a sealing key (which encrypts shared secrets)', async () => {
  const kv = createMemoryStore();
  await createIntegrationStore(kv).put(INTEGRATION, 'ops');
  await expect(clusterOver(kv, '/weir/a', null).init(false)).rejects.toMatchObject({ code: 'seal_key_missing' });
});

test('a node that creates a cluster shares the token of its Kubernetes integration encrypted, and nodes with the sealing key can read it', async () => {
  const kv = createMemoryStore();
  await createIntegrationStore(kv).put(INTEGRATION, 'ops');
  const cluster = clusterOver(kv, '/weir/b', SEAL);
  await cluster.init(true);
  const client = new EtcdClient(started.etcd.options);
  stops.push(() => client.close());
  expect((await client.range(under('/weir/b/'))).entries).toEqual([]);
  await cluster.init(false);
  const { entries } = await client.range(under('/weir/b/'));
  expect(entries.map(({ key }) => key)).toEqual(['/weir/b/shared/integration/prod', '/weir/b/shared/meta']);
  expect(entries.map(({ value }) => Buffer.from(value).toString()).join()).not.toContain(SECRET);

  const other = createMemoryStore();
  const following = clusterOver(other, '/weir/b', SEAL)
    .follow()
    .subscribe({ error: () => {} });
  stops.push(() => following.unsubscribe());
  await expect
    .poll(() => createIntegrationStore(other, { secrets: SEAL }).get('prod'))
    .toMatchObject({ service_account_token: SECRET });
  await expect(cluster.init(false)).rejects.toMatchObject({ code: 'revision_conflict' });
});

test('a node with a Kubernetes integration of its own refuses to follow a cluster', async () => {
  await clusterOver(createMemoryStore(), '/weir/c', null).init(false);
  const kv = createMemoryStore();
  await createIntegrationStore(kv).put(INTEGRATION, 'ops');
  const failure = new Promise<Error>((resolve) => {
    clusterOver(kv, '/weir/c', null).follow().subscribe({ error: resolve });
  });
  expect(await failure).toMatchObject({ name: 'Contradiction', code: 'own_policies' });
  expect(await createIntegrationStore(kv).get('prod')).toMatchObject({ service_account_token: SECRET });
});
