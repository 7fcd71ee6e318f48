import { parseConfig } from '#config/load.js';
import { openDatapath } from '#dataplane/kernel/datapath-thread.js';
import { detach } from '#dataplane/kernel/detach.js';
import type { Program } from '#policy/program.js';
import type { Rig } from './rig.js';

/** Weir, until `detach`. */
export type Judge = { detach(): Promise<void> };

/** Weir on the node of a rig. `settings` are of the `dataplane` section, where it is not as it is by default. */
export async function judge(
  rig: Rig,
  program: Program,
  settings: Readonly<Record<string, unknown>> = {},
): Promise<Judge> {
  const config = {
    version: 1,
    node: { id: 'bench', data_dir: '/nonexistent' },
    dataplane: { interfaces: ['lan0', 'wan0'], pin_path: rig.topology.pinPath, pickup: '0s', ...settings },
  };
  const { dataplane } = parseConfig(JSON.stringify(config), 'bench', {});
  if (dataplane === null) throw new Error('the configuration has no dataplane');
  // It looks by starting nft, which would show in the figures.
  const datapath = openDatapath({ ...dataplane, watchIntervalMs: 3_600_000 });
  // The thread that the first call begins stays in the network namespace that it was begun in.
  await rig.inside('node', () => datapath.open());
  await datapath.attach();
  await datapath.stage(program, 1);
  await datapath.flip();
  return {
    detach: async () => {
      await datapath.close();
      rig.inside('node', () => detach(rig.topology.pinPath));
    },
  };
}
