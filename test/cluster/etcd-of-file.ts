import { afterAll, afterEach, beforeAll } from 'vitest';
import { enterNamespace } from '#test/kernel/namespace.js';
import { EtcdCluster } from './etcd-cluster.js';

type Stop = () => Promise<void> | void;

/**
 * Starts an etcd cluster before the tests of the file that calls this function, and moves this thread into
 * its network namespace. After the tests, and after the other hooks of `afterAll`, it moves the thread back
 * and removes the cluster. After each test, it calls the functions in `stops`, the last first, and removes
 * them from the list. Only hooks and tests can read `etcd`.
 */
export function etcdOfFile(...start: Parameters<typeof EtcdCluster.start>): {
  readonly etcd: EtcdCluster;
  readonly stops: Stop[];
} {
  let etcd: EtcdCluster | undefined;
  let leave: (() => void) | undefined;
  const stops: Stop[] = [];
  beforeAll(async () => {
    etcd = await EtcdCluster.start(...start);
    leave = enterNamespace(etcd.namespace);
  });
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
  });
  afterAll(async () => {
    leave?.();
    await etcd?.remove();
  });
  return {
    stops,
    get etcd() {
      if (etcd === undefined) throw new Error('the etcd cluster is read outside of hooks and tests');
      return etcd;
    },
  };
}
