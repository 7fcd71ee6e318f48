import { setTimeout } from 'node:timers/promises';
import { parseConfig } from '#config/load.js';
import type { Program } from '#contracts/policy/program.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { detach } from '#dataplane/thread/detach.js';
import type { ForwardRig } from './rig.js';

/** A running datapath on the node of a rig. `detach` stops the datapath and removes it from the kernel. */
export type AttachedWeir = { detach(): Promise<void> };

const COPY_MS = 2_000;
const LOOK_MS = 20;

/** Settings with which the network stack forwards all packets, and the datapath forwards none directly. */
export const BY_STACK = { forwarding: 'stack' } as const;

/**
 * Starts a datapath on the node of a rig, and waits until the datapath has copied the routes. `settings`
 * replace defaults of the `dataplane` section. Throws if the routes are not copied in time, or if
 * `forwarding` is `auto` but the datapath does not forward directly.
 */
export async function attachWeir(
  rig: ForwardRig,
  program: Program,
  settings: Readonly<Record<string, unknown>> = {},
): Promise<AttachedWeir> {
  const config = {
    version: 1,
    node: { id: 'bench', data_dir: '/nonexistent' },
    dataplane: { interfaces: ['lan0', 'wan0'], pin_path: rig.topology.pinPath, pickup: '0s', ...settings },
  };
  const { dataplane } = parseConfig(JSON.stringify(config), 'bench', {}).config;
  if (dataplane === null) throw new Error('the configuration has no dataplane section');
  const datapath = openDatapath(dataplane);
  // Open the datapath in the node's network namespace: this call starts the datapath thread, which stays in
  // the namespace of its creator.
  await rig.inside('node', () => datapath.open());
  await datapath.attach();
  await datapath.stage(program, 1);
  await datapath.flip();
  const { forwarding } = await datapath.stats();
  const deadline = performance.now() + COPY_MS;
  while (!(await datapath.stats()).routesCopied) {
    if (performance.now() > deadline)
      throw new Error(`the datapath has not copied the routes of the kernel after ${COPY_MS} ms`);
    await setTimeout(LOOK_MS);
  }
  if (dataplane.forwarding === 'auto' && forwarding.way !== 'direct')
    throw new Error(`the network stack forwards the packets, and not the datapath: ${forwarding.reason}`);
  return {
    detach: async () => {
      await datapath.close();
      rig.inside('node', () => detach(rig.topology.pinPath));
    },
  };
}
