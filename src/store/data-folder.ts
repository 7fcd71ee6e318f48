import type { Stats } from 'node:fs';
import { lstat, mkdir, readdir, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { reasonOf } from '#files/system-failure.js';
import { StoreError } from './store-error.js';
import type { FindingListener } from './store-finding.js';

const ROOT = 0;
const STICKY = 0o1000;
/** Bits of a mode: who may write to a place, and who may enter a folder. */
const GROUP = { write: 0o020, enter: 0o010 } as const;
const OTHERS = { write: 0o002, enter: 0o001 } as const;
const HARM = 'could replace the keys and policies of this node';

/**
 * Makes the data folder with mode 0700. Throws `data_dir_exposed` where another user could replace what is in it, such as the
 * keys of tokens and the policies. The folder, all that is in it and the folders above it must belong to root or to this user.
 * Not every user may write to them, but to a folder above that has the sticky bit, as /tmp does. A place that its group may
 * write to is told to `onFinding`.
 */
export async function makeDataFolder(dataDir: string, onFinding: FindingListener): Promise<void> {
  await attempt(`make the data folder ${dataDir}`, () => mkdir(dataDir, { recursive: true, mode: 0o700 }));
  await attempt(`look at the data folder ${dataDir}`, async () => {
    const real = await realpath(dataDir);
    const { mode } = await lstat(real);
    const shared: string[] = [];
    for (const path of new Set([...above(dataDir), ...above(real)]))
      if (isSharedWithGroup(path, await lstat(path), STICKY)) shared.push(path);
    for (const path of new Set([dataDir, real])) if (isSharedWithGroup(path, await lstat(path), 0)) shared.push(path);
    for (const name of await readdir(real, { recursive: true })) {
      const path = join(real, name);
      const stats = await lstatIfThere(path);
      if (stats === null) continue;
      checkOwner(path, stats);
      // A file that no other user reaches is not exposed, whatever its own mode.
      if ((mode & OTHERS.enter) !== 0) checkOthers(path, stats);
      if ((mode & GROUP.enter) !== 0 && isOpenTo(GROUP.write, stats)) shared.push(path);
    }
    const [first] = shared;
    if (first === undefined) return;
    const more = shared.length > 1 ? `, and to ${shared.length - 1} more places` : '';
    const message = `the group of ${first} can write to it${more}: its members ${HARM}; run chmod g-w`;
    onFinding({ code: 'data_dir_shared', message });
  });
}

/** Every folder above, from the root on. */
function above(path: string): readonly string[] {
  const parent = dirname(path);
  return parent === path ? [] : [...above(parent), parent];
}

/** Throws where another user can replace it. `unless`: a bit that keeps others from replacing what is in it. */
function isSharedWithGroup(path: string, stats: Stats, unless: number): boolean {
  checkOwner(path, stats);
  if ((stats.mode & unless) !== 0) return false;
  checkOthers(path, stats);
  return isOpenTo(GROUP.write, stats);
}

function checkOwner(path: string, { uid }: Stats): void {
  const own = process.getuid?.() ?? ROOT;
  if (uid === own || uid === ROOT) return;
  throw new StoreError('data_dir_exposed', `${path} belongs to user ${uid}, who ${HARM}; run chown -h ${own} ${path}`);
}

function checkOthers(path: string, stats: Stats): void {
  if (!isOpenTo(OTHERS.write, stats)) return;
  throw new StoreError('data_dir_exposed', `every user can write to ${path}, and so ${HARM}; run chmod o-w ${path}`);
}

/** The mode of a link says nothing. */
function isOpenTo(bit: number, stats: Stats): boolean {
  return !stats.isSymbolicLink() && (stats.mode & bit) !== 0;
}

/** A store that another process has open may remove a file meanwhile. */
async function lstatIfThere(path: string): Promise<Stats | null> {
  return lstat(path).catch((failure: NodeJS.ErrnoException) => {
    if (failure.code === 'ENOENT') return null;
    throw failure;
  });
}

async function attempt(doing: string, work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (cause) {
    if (cause instanceof StoreError) throw cause;
    // It may be another place than the data folder: one above it, or a file in it.
    const { path = '' } = cause as NodeJS.ErrnoException;
    throw new StoreError('store_unavailable', `${doing}: ${path === '' ? '' : `${path}: `}${reasonOf(cause)}`, {
      cause,
    });
  }
}
