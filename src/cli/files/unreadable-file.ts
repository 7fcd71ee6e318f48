import { spawnSync } from 'node:child_process';
import { existsSync, lstatSync, readlinkSync, type Stats } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { SystemUser } from './system-user.js';

/** The permission bits of the class "others"; shifted left by 3 for the group, and by 6 for the owner. */
const PERMISSIONS = { read: 0o4, search: 0o1 } as const;
/** The kernel follows at most this number of symbolic links. */
const MAX_LINKS = 40;

/** The file that a user cannot read, or the folder on the way to a file that the user cannot enter. */
export type Obstacle = {
  /** The path without symbolic links. */
  readonly path: string;
  readonly lacks: keyof typeof PERMISSIONS;
  readonly stats: Stats;
};

/**
 * Returns the first obstacle on the way to a file, which can lead through symbolic links. Returns null if the
 * user can read the file, or if the file does not exist. Tests owner, groups and mode, and ignores access
 * control lists. Throws if a folder cannot be read.
 */
export function obstacleTo(file: string, user: SystemUser): Obstacle | null {
  let rest = partsOf(resolve(file));
  let path = '/';
  let links = 0;
  for (;;) {
    const stats = lstatSync(path, { throwIfNoEntry: false });
    if (stats === undefined) return null;
    if (stats.isSymbolicLink()) {
      if (++links > MAX_LINKS) return null;
      rest = [...partsOf(resolve(dirname(path), readlinkSync(path))), ...rest];
      path = '/';
      continue;
    }
    const lacks = rest.length === 0 && !stats.isDirectory() ? 'read' : 'search';
    if (!may(user, stats, lacks)) return { path, lacks, stats };
    const [next, ...others] = rest;
    if (next === undefined) return null;
    rest = others;
    path = join(path, next);
  }
}

/**
 * Returns whether the kernel permits a user to read a file, including access control lists. For a missing
 * file, returns whether the user may enter the nearest existing folder.
 */
export function mayRead({ uid, gids }: SystemUser, path: string): boolean {
  let reached = resolve(path);
  while (!existsSync(reached)) reached = dirname(reached);
  const ids = ['--reuid', `${uid}`, '--regid', `${gids[0] ?? uid}`, '--groups', gids.join()];
  return spawnSync('setpriv', [...ids, 'test', reached === resolve(path) ? '-r' : '-x', reached]).status === 0;
}

const partsOf = (path: string): string[] => path.split('/').filter((part) => part !== '');

/** Tests the permission bits of the file mode that apply to the user: owner, else group, else others. */
function may({ uid, gids }: SystemUser, stats: Stats, permission: keyof typeof PERMISSIONS): boolean {
  const shift = uid === stats.uid ? 6 : gids.includes(stats.gid) ? 3 : 0;
  return (stats.mode & (PERMISSIONS[permission] << shift)) !== 0;
}
