import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { under } from '#cluster/etcd/etcd-types.js';
import { ClusterKeys } from '#cluster/keys.js';
import { collect } from '#cluster/writes/collector.js';
import { CERTIFICATE } from '#test/api/certificate.js';
import { codeOf, FailureRig, MIB, policyOf, put, SOON, textAt } from './failure-rig.js';
import { ClusterNode } from './node-cluster.js';

const keys = new ClusterKeys('/weir');

let rig: FailureRig;
beforeAll(async () => {
  rig = await FailureRig.start('outage');
});
afterAll(() => rig?.remove());

describe('a node that was away', () => {
  test('a node that was disconnected receives changes again after etcd was compacted, and takes over its node id before its old lease ends', async () => {
    await rig.early.end();
    expect((await put(rig.plain, '10.5.0.1', {}, '?rehearse=false')).status).toBe(200);
    await rig.etcd.compact();
    expect((await put(rig.plain, '10.5.0.2', {}, '?rehearse=false')).status).toBe(200);
    await rig.etcd.compact();
    rig.startEarly();
    await rig.early.serves();
    const seen = new Set<string>();
    for (const until = Date.now() + 10_000; Date.now() < until && !seen.has('following') && !seen.has('leading'); )
      seen.add((await rig.early.check('cluster')).state);
    expect([...seen].filter((state) => ['refused', 'cut_off'].includes(state))).toEqual([]);
    await rig.early.takesPart();
    await rig.allHave('10.5.0.2');
  });

  test('a node is refused by the cluster if another node with the same id and another data folder is a member', async () => {
    const second = new ClusterNode('n4', 3, rig.etcd, {
      node: { id: 'n3', data_dir: join(rig.etcd.folder, 'n4', 'data') },
    });
    second.start();
    try {
      await second.serves();
      const { detail } = await second.until('cluster', 'refused');
      expect(detail).toMatch(/the node at 127[.]0[.]0[.]1:9083 has the id n3 since .*each node needs an id of its own/);
      expect((await put(second, '10.5.0.3')).status).toBe(503);
      await rig.early.takesPart();
      expect((await put(rig.early, '10.5.0.4')).status).toBe(200);
    } finally {
      await second.end();
    }
    await rig.allHave('10.5.0.4');
  });
});

describe('an etcd that runs for a fifth of the time', () => {
  test('a policy write is delayed, but succeeds, while etcd runs only a fifth of the time', async () => {
    const slow = (async () => {
      for (const until = Date.now() + 2_500; Date.now() < until; ) {
        await rig.etcd.signal('m1', 'SIGSTOP');
        await pause(400);
        await rig.etcd.signal('m1', 'SIGCONT');
        await pause(100);
      }
    })();
    await pause(500);
    const reply = await put(rig.plain, '10.6.0.1');
    expect([reply.status, reply.text]).toEqual([200, expect.stringContaining('10.6.0.1')]);
    await slow;
    await rig.allHave('10.6.0.1');
    for (const node of rig.nodes) await node.takesPart();
  });
});

describe('an etcd whose database is full', () => {
  test('if the etcd database is full, writes fail with store_full, the check `cluster` reports it, and unused policy parts can still be removed', async () => {
    const putAt = (key: string, value: Buffer) =>
      rig.client.transact({ when: [], apply: [{ type: 'put', key, value }] }, SOON);
    await putAt('/weir/part/00', Buffer.from('garbage'));
    const filling = async () => {
      for (let file = 0; ; file++) await putAt(`/weir/ballast/${file}`, randomBytes(MIB));
    };
    await expect(filling()).rejects.toMatchObject({ code: 'no_space' });
    const refused = await put(rig.plain, '10.7.0.1');
    expect(codeOf(refused)).toEqual([503, 'store_full']);
    const settings = await rig.small.request('PUT', '/api/v1/settings/performance-mode', { enabled: false });
    expect(codeOf(settings)).toEqual([503, 'store_full']);
    expect(await rig.plain.until('cluster', 'full')).toMatchObject({ ok: false });
    expect((await rig.plain.request('GET', '/metrics')).text).toContain('weir_cluster_etcd_full 1');
    expect([await textAt(rig.plain), (await rig.plain.check('policy_replication')).ok]).toEqual([
      await textAt(rig.small),
      true,
    ]);

    const collected = await collect(rig.client, keys, { key: '/weir/none', createRevision: 0n });
    expect([collected.isComplete, collected.removed > 0]).toEqual([true, true]);
    await rig.client.transact({ when: [], apply: [{ type: 'delete_range', range: under('/weir/ballast/') }] }, SOON);
    await rig.etcd.compact();
    rig.etcd.etcdctl('defrag');
    rig.etcd.etcdctl('alarm', 'disarm');
    for (const node of rig.nodes) await node.takesPart();
    expect((await put(rig.plain, '10.7.0.2')).status).toBe(200);
    await rig.allHave('10.7.0.2');
  });
});

describe('a node whose disk is full', () => {
  const detail = async (): Promise<string> => (await rig.small.check('policy_replication')).detail;
  /** A policy of 180 KiB after compression. */
  const large = (address: string) => {
    const { source_groups: groups, ...rest } = policyOf(address, ...Array<string>(1_500).fill('10.8.9.9'));
    const named = groups.map(({ rules, ...group }) => ({
      ...group,
      rules: rules.map((rule) => ({ ...rule, id: randomBytes(120).toString('hex') })),
    }));
    return { ...rest, source_groups: named };
  };
  /**
   * Fills the disk, and writes at another node until the disk refuses a change. Returns the address in the
   * last policy. RocksDB reserves several MiB for its log, which an integration fills sooner than a policy.
   */
  async function fill(network: string): Promise<string> {
    const integration = {
      kind: 'kubernetes',
      api_server_url: 'https://192.0.2.1:6443',
      ca_cert_pem: CERTIFICATE.repeat(1_500),
      service_account_token: 'a-secret-token',
    };
    for (let octet = 1; octet < 20; octet++) {
      rig.fillDisk();
      // The database of etcd must not become full before the disk does.
      await rig.etcd.compact();
      const written = await rig.plain.request('PUT', '/api/v1/integrations/prod', integration);
      expect([200, 201]).toContain(written.status);
      const address = `${network}.${octet}`;
      expect((await put(rig.plain, address)).status).toBe(200);
      await rig.allHave(address);
      if ((await detail()).includes('not kept here')) return address;
    }
    throw new Error('the disk is not full');
  }
  const startEtcd = async (): Promise<void> => {
    for (const { name } of rig.etcd.members) rig.etcd.startMember(name);
    await rig.etcd.healthy();
  };
  const stopEtcd = async (): Promise<void> => {
    for (const { name } of rig.etcd.members) await rig.etcd.signal(name, 'SIGKILL');
  };
  async function restarted(): Promise<void> {
    await rig.small.end();
    rig.small.start();
    await rig.small.serves();
  }

  test('a node with a full disk enforces new policies of the cluster without storing them, and refuses policy writes', async () => {
    const address = await fill('10.8.0');
    expect(await rig.small.check('policy_replication')).toMatchObject({ ok: true, state: 'in_step' });
    // Without etcd, the restarted node has an older policy than the kernel, and does not put it in force.
    await stopEtcd();
    await restarted();
    const { detail: behind } = await rig.small.until('policy_ready', 'backing_off');
    expect(behind).toContain('The kernel enforces its policy until a policy is written');
    await startEtcd();
    await rig.small.takesPart();
    await rig.small.until('policy_ready', 'active');
    await rig.allHave(address);
    // Repeat: the store became writable with the first change, and its log can have room for some writes.
    const refused = async () => {
      rig.fillDisk();
      await rig.etcd.compact();
      return codeOf(await rig.small.request('PUT', '/api/v1/policy', large('10.8.1.1')));
    };
    await expect.poll(refused, { interval: 0 }).toEqual([503, 'store_unavailable']);

    rmSync(rig.ballast, { recursive: true });
    await restarted();
    await rig.small.takesPart();
    expect(await detail()).not.toContain('not kept here');
    expect((await put(rig.small, '10.8.1.2')).status).toBe(200);
    await rig.allHave('10.8.1.2');
  });

  test('a node stores all policies of the cluster as soon as its full disk has space again', async () => {
    const address = await fill('10.8.2');
    rmSync(rig.ballast, { recursive: true });
    await expect.poll(detail).not.toContain('not kept here');
    await stopEtcd();
    await restarted();
    expect(await textAt(rig.small)).toContain(address);
    await startEtcd();
    for (const node of rig.nodes) await node.takesPart();
  });
});
