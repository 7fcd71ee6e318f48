import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { Random, seedOf } from '#test/seed.js';
import type { ClusterNode } from './node-cluster.js';
import { nodesOfFile } from './nodes-of-file.js';

const ROUNDS = 3;

const started = nodesOfFile(5, 'ends');
const { nodes } = started;

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
    for (const { name } of started.etcd.members) await started.etcd.signal(name, 'SIGSTOP');
    await restart(some);
    await pause(random.between(0, 2_000));
    for (const { name } of started.etcd.members) await started.etcd.signal(name, 'SIGCONT');
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
