import { afterAll, beforeAll } from 'vitest';
import { createTopology, type Topology } from '#cli/tour/topology.js';
import { enterNamespace } from './namespace.js';

/**
 * Makes a topology before the tests of the file that calls this function (or of the `describe` that does),
 * and moves this thread into the network namespace of its node. After these tests, and after the other hooks
 * of `afterAll`, it moves the thread back and removes the topology. Only hooks and tests can read the result.
 */
export function topologyOfFile(tag: string): Topology {
  let created: Topology | undefined;
  let leave: (() => void) | undefined;
  beforeAll(async () => {
    created = await createTopology(tag);
    leave = enterNamespace(created.node.name);
  });
  afterAll(async () => {
    leave?.();
    await created?.remove();
  });
  const topology = (): Topology => {
    if (created === undefined) throw new Error(`the topology ${tag} is read outside of hooks and tests`);
    return created;
  };
  return {
    get client() {
      return topology().client;
    },
    get node() {
      return topology().node;
    },
    get server() {
      return topology().server;
    },
    get pinPath() {
      return topology().pinPath;
    },
    remove: () => topology().remove(),
  };
}
