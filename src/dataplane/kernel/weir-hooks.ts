import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Attachment } from '#dataplane/datapath.js';
import { type ProgramInfo, programInfo } from './bpf-fd.js';
import { clsactProgram, DIRECTIONS, type Direction, tcxPrograms } from './hook.js';
import type { Interface } from './interfaces.js';
import { type MapSet, mapSetsIn } from './map-set.js';

const BPF_FS = '/sys/fs/bpf';

/** A program of Weir on a hook, whoever put it there. */
export type WeirHook = {
  readonly interface: Interface;
  readonly direction: Direction;
  readonly by: Attachment['by'];
  readonly program: ProgramInfo;
};

export function weirHooks(interfaces: readonly Interface[]): WeirHook[] {
  return interfaces.flatMap((found) =>
    DIRECTIONS.flatMap((direction) => {
      const clsact = clsactProgram(found.ifindex, direction);
      const ids = [
        ...tcxPrograms(found.ifindex, direction).map((id) => ({ id, by: 'tcx' as const })),
        ...(clsact === undefined ? [] : [{ id: clsact, by: 'clsact' as const }]),
      ];
      return ids.flatMap(({ id, by }) => {
        const program = programInfo(id);
        return program?.name === `weir_${direction}` ? [{ interface: found, direction, by, program }] : [];
      });
    }),
  );
}

/** Whether the program judges by one of these sets. */
export function judgesBy(program: ProgramInfo, sets: readonly MapSet[]): MapSet | undefined {
  return sets.findLast((set) => program.mapIds.includes(set.id('active')));
}

/** The pin path that the program's maps are pinned under; undefined where that is not found. */
export function pinPathOf(program: ProgramInfo): string | undefined {
  if (!existsSync(BPF_FS)) return undefined;
  for (const entry of readdirSync(BPF_FS, { withFileTypes: true })) {
    if (!entry.isDirectory()) continue;
    const path = join(BPF_FS, entry.name);
    const sets = mapSetsIn(path);
    const judged = judgesBy(program, sets) !== undefined;
    for (const set of sets) set.close();
    if (judged) return path;
  }
  return undefined;
}
