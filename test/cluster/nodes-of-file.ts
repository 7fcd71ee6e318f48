import { afterAll, beforeAll } from 'vitest';
import { etcdOfFile } from './etcd-of-file.js';
import { type ClusterNode, startNodes } from './node-cluster.js';

/**
 * Starts an etcd cluster and `count` nodes before the tests of the file that calls this function, and moves
 * this thread into their network namespace. After the tests, it ends the nodes in `nodes`, to which a test
 * may add nodes, and removes the cluster. Only hooks and tests can use the result.
 */
export function nodesOfFile(count: number, ...start: Parameters<typeof etcdOfFile>) {
  const started = etcdOfFile(...start);
  const nodes: ClusterNode[] = [];
  beforeAll(async () => {
    nodes.push(...(await startNodes(started.etcd, count)));
  });
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.end()));
  });
  return {
    nodes,
    nodeAt: (index: number): ClusterNode => {
      const node = nodes[index];
      if (node === undefined) throw new Error(`there is no node ${index}`);
      return node;
    },
    get etcd() {
      return started.etcd;
    },
  };
}
