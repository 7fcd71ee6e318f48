import type { NodeOptions } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createRig, type NodeRig } from '#test/e2e/rig.js';
import { built } from '#threads/built-file.js';

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

/** A node with `POLICY` in force, and a client that opens connections to each port. */
export type ConsoleNode = { readonly rig: NodeRig; remove(): Promise<void> };

export async function createConsoleNode(tag: string, options: NodeOptions = {}): Promise<ConsoleNode> {
  const rig = await createRig(tag, PORTS, options);
  try {
    await rig.put(POLICY);
  } catch (failure) {
    await rig.remove();
    throw failure;
  }
  rig.topology.client.start(process.execPath, [
    built('test/console/visitor-process.js'),
    ADDRESSES.server,
    ...PORTS.map(String),
  ]);
  return { rig, remove: () => rig.remove() };
}
