import { readdirSync, readlinkSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { matchesInterface } from '#contracts/datapath/datapath-options.js';
import { makeFolders } from '#files/make-folders.js';
import type { Interface } from './interfaces.js';

/**
 * An interface that is policed. `renamedFrom` is the name by which it was policed before it got a name that
 * matches no configured name; undefined if its name matches.
 */
export type PolicedInterface = Interface & { readonly renamedFrom: string | undefined };

/**
 * Returns the policed interfaces among `all`: those whose name matches a configured name, and those that were
 * policed by such a name and have another name now (D20). `names`: interface index → the name by which the
 * interface was policed last.
 */
export function policedAmong(
  all: readonly Interface[],
  patterns: readonly string[],
  names: ReadonlyMap<number, string>,
): PolicedInterface[] {
  return all.flatMap((found) => {
    if (matchesInterface(patterns, found.name)) return { ...found, renamedFrom: undefined };
    const former = names.get(found.ifindex);
    return former !== undefined && matchesInterface(patterns, former) ? { ...found, renamedFrom: former } : [];
  });
}

/** Returns the policed interfaces whose name no configured name matches. */
export function renamedAmong(policed: readonly PolicedInterface[]): (PolicedInterface & { renamedFrom: string })[] {
  return policed.flatMap(({ renamedFrom, ...found }) => (renamedFrom === undefined ? [] : { ...found, renamedFrom }));
}

/**
 * Reads the names that `PolicedNames` has recorded in a folder, by interface index. Each name is the target
 * of a symbolic link, and not a path.
 */
export function readPolicedNames(folder: string): Map<number, string> {
  try {
    return new Map(readdirSync(folder).map((entry) => [Number(entry), readlinkSync(join(folder, entry))]));
  } catch (failure) {
    if ((failure as NodeJS.ErrnoException).code === 'ENOENT') return new Map();
    throw failure;
  }
}

/**
 * The names by which interfaces are policed, by interface index. They are recorded in the BPF file system,
 * beside the pinned links, and so stay as long as the links. So the next process recognizes an interface that
 * was renamed while no process ran.
 */
export class PolicedNames {
  #names = new Map<number, string>();

  constructor(readonly folder: string) {}

  get all(): ReadonlyMap<number, string> {
    return this.#names;
  }

  /**
   * Reads the record of an earlier process. Leaves out interfaces for which `isPoliced` returns false: the
   * interface of the record was removed, and another interface can have its index.
   */
  load(isPoliced: (ifindex: number) => boolean): void {
    this.#names = new Map([...readPolicedNames(this.folder)].filter(([ifindex]) => isPoliced(ifindex)));
  }

  /**
   * Records a name. Call it before a program is attached to the interface: a crash between the two calls then
   * leaves a name without a program, and never a program without a name.
   */
  note(ifindex: number, name: string): void {
    this.#names.set(ifindex, name);
    const path = join(this.folder, `${ifindex}`);
    if (textOf(path) === name) return;
    makeFolders(this.folder, 0o700);
    const fresh = join(this.folder, 'new');
    rmSync(fresh, { force: true });
    symlinkSync(name, fresh);
    renameSync(fresh, path);
  }

  forget(ifindex: number): void {
    this.#names.delete(ifindex);
    rmSync(join(this.folder, `${ifindex}`), { force: true });
  }
}

function textOf(link: string): string | undefined {
  try {
    return readlinkSync(link);
  } catch (failure) {
    if ((failure as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw failure;
  }
}
