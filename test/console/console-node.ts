import { setTimeout as pause } from 'node:timers/promises';
import type { NodeOptions } from '#cli/tour/node-process.js';
import { createRig, type NodeRig } from '#test/e2e/rig.js';

/** A policy with an allowed service, a denied one, one that would be denied, and a rule that nothing uses. */
export const POLICY = {
  default_policy: 'deny',
  source_groups: [
    {
      id: 'office',
      mode: 'enforce',
      sources: { cidrs: ['10.77.1.0/24'] },
      rules: [
        { id: 'web', action: 'allow', match: { dst_cidrs: ['10.77.2.0/24'], proto: 'tcp', dst_ports: [80, 443] } },
        { id: 'no-telnet', action: 'deny', match: { proto: 'tcp', dst_ports: [23] } },
        { id: 'cameras', action: 'deny', mode: 'audit', match: { proto: 'tcp', dst_ports: [554] } },
        { id: 'old-ftp', action: 'allow', match: { proto: 'tcp', dst_ports: [21] } },
      ],
    },
  ],
};

const PORTS = [80, 443, 23, 554, 22];
/** Between two connections to a port. Each connection starts a process. */
const PAUSE_MS = 1_500;

/** A node with `POLICY` in force, and clients that open a connection to each port a few times a second. */
export type ConsoleNode = { readonly rig: NodeRig; remove(): Promise<void> };

export async function createConsoleNode(tag: string, options: NodeOptions = {}): Promise<ConsoleNode> {
  const rig = await createRig(tag, PORTS, options);
  try {
    await rig.put(POLICY);
  } catch (failure) {
    await rig.remove();
    throw failure;
  }
  let isOver = false;
  const loops = PORTS.map(async (port) => {
    while (!isOver) {
      // A connection that the end of the test interrupts has no first line.
      await rig.tcp(port).catch(() => {});
      await pause(PAUSE_MS);
    }
  });
  return {
    rig,
    remove: async () => {
      isOver = true;
      await rig.remove();
      await Promise.allSettled(loops);
    },
  };
}
