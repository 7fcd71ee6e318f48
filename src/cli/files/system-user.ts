import { readFileSync } from 'node:fs';

/** The ids with which the kernel checks the file permissions of a user. */
export type SystemUser = { readonly name: string; readonly uid: number; readonly gids: readonly number[] };

/** The lowest uid of a normal user. A user with a lower uid is a system user. */
const FIRST_PERSON = 1_000;

/** Returns the system user of this name in /etc/passwd; undefined if there is none. */
export function systemUser(name: string): SystemUser | undefined {
  const user = userNamed(name);
  return user !== undefined && user.uid < FIRST_PERSON ? user : undefined;
}

/**
 * Returns the user of this name or uid in /etc/passwd; undefined if there is none. The first group of the
 * result is `group` if it is given and exists, otherwise the group in /etc/passwd.
 */
export function userNamed(name: string, group?: string): SystemUser | undefined {
  const [login, , uid, gid] = lines('/etc/passwd').find(([login, , uid]) => login === name || uid === name) ?? [];
  if (login === undefined || uid === undefined || gid === undefined) return undefined;
  const groups = lines('/etc/group');
  const [, , first = gid] = groups.find(([title, , id]) => title === group || id === group) ?? [];
  const others = groups.filter(([, , , members]) => members?.split(',').includes(login)).map(([, , id]) => id);
  return { name: login, uid: Number(uid), gids: [...new Set([first, gid, ...others].map(Number))] };
}

/** Returns the name of a user; its uid as text if it has no name. */
export const userName = (uid: number): string => nameIn('/etc/passwd', uid);

/** Returns the name of a group; its gid as text if it has no name. */
export const groupName = (gid: number): string => nameIn('/etc/group', gid);

const nameIn = (file: string, id: number): string => lines(file).find(([, , of]) => of === String(id))?.[0] ?? `${id}`;

const lines = (file: string): string[][] =>
  readFileSync(file, 'utf8')
    .split('\n')
    .map((line) => line.split(':'));
