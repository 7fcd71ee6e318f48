import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Attachment } from '#contracts/datapath.js';
import {
  closeFd,
  linkInfo,
  openPinned,
  type ProgramInfo,
  programInfo,
  programInfoOf,
} from '#dataplane/loader/bpf-fd.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import { type MapSet, mapSetsIn } from '#dataplane/object/map-set.js';
import { clsactProgram, tcxPrograms } from './hook.js';
import type { Interface } from './interfaces.js';

const BPF_FS = '/sys/fs/bpf';

/** A program of Weir on a hook, of this node or of another one. */
export type WeirHook = {
  readonly interface: Interface;
  readonly direction: Direction;
  readonly by: Attachment['by'];
  readonly program: ProgramInfo;
  /** The folder where its maps or its link are pinned; undefined if that is not found. */
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

/** The programs on a hook: all on TCX, third-party programs included, and on clsact only the one of Weir. */
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

/** The set of maps that the program classifies by; undefined if it is none of these. */
export function judgesBy(program: ProgramInfo, sets: readonly MapSet[]): MapSet | undefined {
  return sets.findLast((set) => program.mapIds.includes(set.id('active')));
}

type Pinned = { readonly path: string; readonly program: ProgramInfo };

/**
 * Programs by their ids. The kernel describes a program by its id to CAP_SYS_ADMIN only. Without that
 * capability only those programs are known that Weir has pinned in /sys/fs/bpf, beside their maps or by their
 * links.
 */
export class Programs {
  readonly #pinned = new Map<number, Pinned>();
  /**
   * Programs found by their links: only the id is known, and from the name of the link that the program is
   * Weir's.
   */
  readonly #linked = new Map<number, Pinned>();
  readonly #activeMaps = new Map<number, string>();

  /** `pinPath` is searched in addition to the folders of /sys/fs/bpf. */
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

  /** The pin path of the program's maps or of its link. */
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

/** Skips pins that belong to other users, and pins that are removed meanwhile. */
function readable(read: () => void): void {
  try {
    read();
  } catch (failure) {
    if (!['EACCES', 'EPERM', 'ENOENT'].includes((failure as NodeJS.ErrnoException).code ?? '')) throw failure;
  }
}
