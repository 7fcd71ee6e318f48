import type { Datapath } from '#dataplane/datapath.js';
import { openDatapath } from '#dataplane/kernel/datapath-thread.js';
import type { Program } from '#policy/program.js';
import type { Rig } from './rig.js';

/** Weir on the node of a rig, enforcing a program with the options that a node has by default. */
export async function judge(rig: Rig, program: Program): Promise<Datapath> {
  // The thread that the first call begins stays in the network namespace that it was begun in.
  const datapath = openDatapath({
    interfaces: ['lan0', 'wan0'],
    nonIpv4: 'drop',
    reversePath: 'strict',
    pickupMs: 0,
    flowCapacity: 131_072,
    markMask: 0x00f0_0000,
    pinPath: rig.topology.pinPath,
    // It looks by starting nft, which would show in the figures.
    watchIntervalMs: 3_600_000,
  });
  await rig.inside('node', () => datapath.open());
  await datapath.attach();
  await datapath.stage(program, 1);
  await datapath.flip();
  return datapath;
}
