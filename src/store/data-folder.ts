import type { Stats } from 'node:fs';
import { lstat, mkdir, readdir, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { reasonOf } from '#files/system-failure.js';
import { StoreError } from './store-error.js';
import type { FindingListener } from './store-finding.js';

const ROOT = 0;
const STICKY = 0o1000;
/** Mode bits: write permission, and permission to enter a folder. */
const GROUP = { write: 0o020, enter: 0o010 } as const;
const OTHERS = { write: 0o002, enter: 0o001 } as const;
const HARM = 'could replace the keys and policies of this node';

/**
 * Makes the data folder with mode 0700. Throws `data_dir_exposed` if another user could replace its content,
 * such as token keys and policies. The folder, its content and all folders above it must belong to root or to
 * this user. They must not be writable by every user; only a folder above may be, if it has the sticky bit
 * (such as /tmp). A path that its group may write to is reported to `onFinding`.
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
      // A file in a folder that other users cannot enter is not exposed, whatever its own mode is.
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

/** All folders above a path, from the root on. */
function above(path: string): readonly string[] {
  const parent = dirname(path);
  return parent === path ? [] : [...above(parent), parent];
}

/**
 * Returns whether the group can write to a path, and throws if every user can. A path with the mode bit
 * `unless` counts as not writable.
 */
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

/** Always false for a link: the mode of a link has no effect. */
function isOpenTo(bit: number, stats: Stats): boolean {
  return !stats.isSymbolicLink() && (stats.mode & bit) !== 0;
}

/**
 * Null if the path does not exist: a database that another process has open may remove files during the walk.
 */
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
    // The failed path may be a folder above the data folder or a file in it.
    const { path = '' } = cause as NodeJS.ErrnoException;
    throw new StoreError('store_unavailable', `${doing}: ${path === '' ? '' : `${path}: `}${reasonOf(cause)}`, {
      cause,
    });
  }
}
