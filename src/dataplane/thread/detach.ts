import { existsSync } from 'node:fs';
import { detachClsact } from '#dataplane/attach/attach-program.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { Ownership } from '#dataplane/attach/ownership.js';
import { Pins } from '#dataplane/attach/pins.js';
import { mapSetOf, weirHooks } from '#dataplane/attach/weir-hooks.js';
import { emptyBootFile } from '#dataplane/guard/boot-guard.js';
import { removeGuard } from '#dataplane/guard/nftables-guard.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import { mapSetsIn } from '#dataplane/object/map-set.js';
import { removeDiversion } from '#dataplane/routes/divert.js';

/** The objects that `detach` removed. `guard`: whether the guard (Weir's nftables rules) existed. */
export type Detached = {
  readonly hooks: readonly { readonly interface: string; readonly direction: Direction }[];
  /** Paths of the removed folders with pinned maps. */
  readonly maps: readonly string[];
  readonly guard: boolean;
  /** Whether the boot file of the guard (nftables rules of Weir) had commands; it is empty now. */
  readonly bootFile: boolean;
};

/**
 * Removes Weir's hooks, pins, guard and routing rule, and empties the boot file of the guard (nftables rules
 * of Weir), so that no policy applies on the node any more (D20). Throws `OtherProcess` while a Weir process
 * uses the pin path. `deploy/debian/postrm` does the same in shell after the package was removed: change
 * both.
 */
export function detach(pinPath: string, bootFile?: string): Detached {
  const pins = new Pins(pinPath);
  const ownership = new Ownership(pinPath);
  ownership.acquire(() => pins.prepare());
  try {
    pins.refuseOthers();
    const interfaces = listInterfaces();
    const sets = mapSetsIn(pinPath);
    const hooks = weirHooks(interfaces, pinPath).filter(
      (hook) => hook.by === 'clsact' || hook.pinPath === pinPath || mapSetOf(hook.program, sets),
    );
    // Empty the file before the guard (nftables rules of Weir) is removed. A crash in between leaves the
    // running node as it was.
    const hadBootFile = bootFile !== undefined && emptyBootFile(bootFile);
    // Remove the guard (nftables rules of Weir) before the programs: it drops each packet that no program has
    // passed.
    const guard = removeGuard();
    pins.removeLinks();
    for (const { ifindex } of interfaces) {
      for (const direction of DIRECTIONS) detachClsact(ifindex, direction);
    }
    removeDiversion();
    for (const set of sets) set.close();
    pins.removeAll();
    return {
      hooks: hooks.map(({ interface: { name }, direction }) => ({ interface: name, direction })),
      maps: sets.map(({ folder }) => folder).filter((folder) => !existsSync(folder)),
      guard,
      bootFile: hadBootFile,
    };
  } finally {
    ownership.release();
  }
}
