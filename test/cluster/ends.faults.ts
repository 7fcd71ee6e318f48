import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { enterNamespace } from '#test/kernel/namespace.js';
import { Random, seedOf } from '#test/seed.js';
import { EtcdCluster } from './etcd-cluster.js';
import { type ClusterNode, startNodes } from './node-cluster.js';

const ROUNDS = 3;

let etcd: EtcdCluster;
let leave: () => void;
let nodes: readonly ClusterNode[] = [];
beforeAll(async () => {
  etcd = await EtcdCluster.start('ends');
  leave = enterNamespace(etcd.namespace);
  nodes = await startNodes(etcd, 5);
});
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.end()));
  leave?.();
  await etcd?.remove();
});

/** Stops nodes, and checks that nothing kept their processes alive. Starts them again. */
async function restart(stopped: readonly ClusterNode[]): Promise<void> {
  await Promise.all(stopped.map((node) => node.end('SIGTERM')));
  expect(stopped.flatMap(({ crashes }) => crashes)).toEqual([]);
  for (const node of stopped) node.start();
  await Promise.all(stopped.map((node) => node.serves()));
}

test('nodes that start without etcd, and are frozen later, exit after SIGTERM because no connection keeps the process alive', async () => {
  const random = new Random(seedOf(4));
  const some = nodes.slice(1);
  for (let round = 0; round < ROUNDS; round++) {
    for (const { name } of etcd.members) await etcd.signal(name, 'SIGSTOP');
    await restart(some);
    await pause(random.between(0, 2_000));
    for (const { name } of etcd.members) await etcd.signal(name, 'SIGCONT');
    await Promise.all(some.map((node) => node.takesPart()));
    for (const node of some) node.signal('SIGSTOP');
    await pause(random.between(1_500, 3_000));
    for (const node of some) node.signal('SIGCONT');
    await pause(random.between(0, 3_000));
    await Promise.all(some.map((node) => node.takesPart()));
    await restart(some);
    await Promise.all(some.map((node) => node.takesPart()));
  }
});
