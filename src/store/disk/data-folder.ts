import type { Stats } from 'node:fs';
import { lstat, readdir, realpath, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { makeFolders } from '#files/make-folders.js';
import { reasonOf } from '#files/system-failure.js';
import { StoreError } from '#store/store-error.js';
import type { FindingListener, StoreFinding } from '#store/store-finding.js';

const ROOT = 0;
const STICKY = 0o1000;
/** File mode bits for the group. On a folder, the execute bit permits access to the files in the folder. */
const GROUP = { write: 0o020, enter: 0o010 } as const;
const OTHERS = { write: 0o002, enter: 0o001 } as const;
const HARM = 'could replace the keys and policies of this node';

/**
 * Creates the data folder with mode 0700 if it does not exist. Throws `data_dir_exposed` if another user
 * could replace its content, such as token keys and policies.
 * - The folder, its content and all folders above must belong to root or to the user of this process.
 * - No such path may be writable by every user, except a folder above that has the sticky bit, such as /tmp.
 * - If the group of such a path has write permission, `onFinding` receives a finding.
 */
export async function makeDataFolder(dataDir: string, onFinding: FindingListener): Promise<void> {
  await attempt(`make the data folder ${dataDir}`, async () => makeFolders(dataDir, 0o700));
  await attempt(`check the data folder ${dataDir}`, async () => {
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
      // If other users can enter the data folder, every file in it must be protected by its own mode.
      // Otherwise no other user can reach the files, so their modes do not matter.
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

/** Returns all folders above a path, beginning with the root folder. */
function above(path: string): readonly string[] {
  const parent = dirname(path);
  return parent === path ? [] : [...above(parent), parent];
}

/**
 * Returns whether the user group of a path can write to the path. Throws `data_dir_exposed` if every user can
 * write to the path. If the path has the mode bit `unless`, such as the sticky bit, returns false and ignores
 * the write permissions.
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
  throw new StoreError(
    'data_dir_exposed',
    `${path} belongs to the user ${uid}, who ${HARM}; run chown -h ${own} ${path}`,
  );
}

function checkOthers(path: string, stats: Stats): void {
  if (!isOpenTo(OTHERS.write, stats)) return;
  throw new StoreError('data_dir_exposed', `every user can write to ${path}, and ${HARM}; run chmod o-w ${path}`);
}

/**
 * Returns whether the mode contains the bit. Returns false for a symbolic link, because the mode of a link
 * has no effect.
 */
function isOpenTo(bit: number, stats: Stats): boolean {
  return !stats.isSymbolicLink() && (stats.mode & bit) !== 0;
}

/**
 * Returns the status of a path, or null if the path does not exist. Another process that has the database
 * open may delete files while `makeDataFolder` checks them.
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
    // Name the path of the failure in the message: it may be a folder above the data folder, or a file in it.
    const { path = '' } = cause as NodeJS.ErrnoException;
    throw new StoreError('store_unavailable', `${doing}: ${path === '' ? '' : `${path}: `}${reasonOf(cause)}`, {
      cause,
    });
  }
}

/**
 * Renames the folder of a damaged store. The files are kept, and a new store can be created under the old
 * name. Returns a finding that names the new path of the damaged store.
 */
export async function quarantine(folder: string, { message }: StoreError): Promise<StoreFinding> {
  const aside = `${folder}.damaged-${new Date().toISOString().replaceAll(':', '')}`;
  await rename(folder, aside);
  return { code: 'store_quarantined', message: `${message}; the damaged files are kept in ${aside}` };
}
