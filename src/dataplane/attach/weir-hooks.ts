import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Attachment } from '#contracts/datapath/datapath.js';
import type { Interface } from '#dataplane/attach/interfaces/interfaces.js';
import {
  closeFd,
  linkInfo,
  openPinned,
  type ProgramInfo,
  programInfo,
  programInfoOf,
} from '#dataplane/loader/bpf-fd.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import { mapSetsIn, type PinnedMaps } from '#dataplane/object/map-set.js';
import { clsactProgram, tcxPrograms } from './attach-program.js';
import { OwnedElsewhere } from './ownership.js';

const BPF_FS = '/sys/fs/bpf';

/** A BPF program of Weir on a hook. This node or another Weir node attached the BPF program. */
export type WeirHook = {
  readonly interface: Interface;
  readonly direction: Direction;
  readonly by: Attachment['by'];
  readonly program: ProgramInfo;
  /**
   * The folder where the maps or the link of the BPF program are pinned; undefined if this process has found
   * no such pin.
   */
  readonly pinPath: string | undefined;
};

export function weirHooks(interfaces: readonly Interface[], pinPath: string): WeirHook[] {
  const programs = new Programs(pinPath);
  return interfaces.flatMap((found) =>
    DIRECTIONS.flatMap((direction) =>
      programsOn(found.ifindex, direction).flatMap(({ id, by }) => {
        const program = programs.info(id);
        const isWeir = program?.name === `weir_${direction}`;
        return isWeir ? [{ interface: found, direction, by, program, pinPath: programs.pathOf(program) }] : [];
      }),
    ),
  );
}

/**
 * Returns the BPF programs on a hook. On TCX these are all programs, including third-party programs; on
 * clsact only the program of Weir.
 */
export function programsOn(
  ifindex: number,
  direction: Direction,
): { readonly id: number; readonly by: Attachment['by'] }[] {
  const clsact = clsactProgram(ifindex, direction);
  return [
    ...tcxPrograms(ifindex, direction).map((id) => ({ id, by: 'tcx' as const })),
    ...(clsact === undefined ? [] : [{ id: clsact, by: 'clsact' as const }]),
  ];
}

/**
 * Returns the set of pinned maps that the BPF program uses to classify packets; undefined if the program uses
 * the maps of none of the given sets.
 */
export function mapSetOf(program: ProgramInfo, sets: readonly PinnedMaps[]): PinnedMaps | undefined {
  return sets.findLast((set) => program.mapIds.includes(set.id('active')));
}

type Pinned = { readonly path: string; readonly program: ProgramInfo };

/**
 * Descriptions of BPF programs by program id. The kernel describes a program id only to a process with
 * CAP_SYS_ADMIN. Without that capability, this class finds only BPF programs of Weir that are pinned in
 * `/sys/fs/bpf`: a pin of the program itself, or a pin of its link.
 */
export class Programs {
  readonly #pinned = new Map<number, Pinned>();
  /**
   * BPF programs that the class has found by their pinned links, by program id. Without CAP_SYS_ADMIN the
   * kernel gives only the id, so the class derives the program name from the name of the link.
   */
  readonly #linked = new Map<number, Pinned>();
  readonly #activeMaps = new Map<number, string>();

  /** Also searches `pinPath` for pins, in addition to the folders of `/sys/fs/bpf`. */
  constructor(pinPath?: string) {
    const paths = new Set([...pinPaths(), ...(pinPath !== undefined && existsSync(pinPath) ? [pinPath] : [])]);
    for (const path of paths) {
      readable(() => this.#addSets(path));
      readable(() => this.#addLinks(path));
    }
  }

  info(id: number): ProgramInfo | undefined {
    return this.#pinned.get(id)?.program ?? programInfo(id) ?? this.#linked.get(id)?.program;
  }

  /**
   * Returns the folder of the pinned maps or of the pinned link of a BPF program; undefined if neither is
   * pinned.
   */
  pathOf({ id, mapIds }: ProgramInfo): string | undefined {
    const path = mapIds.flatMap((map) => this.#activeMaps.get(map) ?? [])[0];
    return path ?? this.#linked.get(id)?.path;
  }

  #addSets(path: string): void {
    for (const set of mapSetsIn(path)) {
      try {
        if (set.has('active')) this.#activeMaps.set(set.id('active'), path);
        for (const direction of DIRECTIONS) {
          const fd = set.openProgram(direction);
          if (fd === undefined) continue;
          const program = programInfoOf(fd);
          closeFd(fd);
          this.#pinned.set(program.id, { path, program });
        }
      } finally {
        set.close();
      }
    }
  }

  #addLinks(path: string): void {
    for (const folder of readdirSync(path).filter((name) => name.startsWith('links-'))) {
      for (const link of readdirSync(join(path, folder))) {
        const direction = DIRECTIONS.find((each) => link.endsWith(`-${each}`));
        if (direction === undefined) continue;
        const fd = openPinned(join(path, folder, link));
        const { programId: id } = linkInfo(fd);
        closeFd(fd);
        this.#linked.set(id, { path, program: { id, name: `weir_${direction}`, tag: '', mapIds: [] } });
      }
    }
  }
}

function pinPaths(): string[] {
  if (!existsSync(BPF_FS)) return [];
  const folders = readdirSync(BPF_FS, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return folders.map(({ name }) => join(BPF_FS, name));
}

/** Calls `read`, and ignores the error if a pin belongs to another user or was removed during the call. */
function readable(read: () => void): void {
  try {
    read();
  } catch (failure) {
    if (!['EACCES', 'EPERM', 'ENOENT'].includes((failure as NodeJS.ErrnoException).code ?? '')) throw failure;
  }
}

/**
 * Throws `OwnedElsewhere` if BPF programs of another Weir node, with another pin path, are on the same
 * interfaces, because two policies would then apply to each packet. `held` are the ids of BPF programs that
 * belong to this node. Ignores a clsact program without any pin, which belongs to no node; a later attach
 * replaces that program.
 */
export function refuseOtherNodes(pinPath: string, policed: readonly Interface[], held: readonly number[]): void {
  const sets = mapSetsIn(pinPath);
  try {
    for (const { interface: found, by, program, pinPath: path } of weirHooks(policed, pinPath)) {
      if (path === pinPath || mapSetOf(program, sets) !== undefined) continue;
      if (path !== undefined) {
        throw new OwnedElsewhere(
          `${found.name} is policed by the datapath of another node, pinned in ${path}: set dataplane.pin_path to that folder, or remove the datapath with weir dataplane detach --pin-path ${path}`,
        );
      }
      if (by === 'tcx' && !held.includes(program.id)) {
        throw new OwnedElsewhere(
          `${found.name} is policed by program ${program.id} of another node, whose pins are not in /sys/fs/bpf: detach that program first`,
        );
      }
    }
  } finally {
    for (const set of sets) set.close();
  }
}
