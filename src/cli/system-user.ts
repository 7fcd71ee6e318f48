import { readFileSync } from 'node:fs';

/** The ids with which the kernel checks the file permissions of a user. */
export type SystemUser = { readonly name: string; readonly uid: number; readonly gids: readonly number[] };

/** The first uid of a person: a user with a lower uid is a system user. */
const FIRST_PERSON = 1_000;

/** Returns the system user of this name in /etc/passwd; undefined if there is none. */
export function systemUser(name: string): SystemUser | undefined {
  const [, , uid, gid] = lines('/etc/passwd').find(([login]) => login === name) ?? [];
  if (uid === undefined || gid === undefined || Number(uid) >= FIRST_PERSON) return undefined;
  const others = lines('/etc/group').filter(([, , , members]) => members?.split(',').includes(name));
  return { name, uid: Number(uid), gids: [Number(gid), ...others.map(([, , id]) => Number(id))] };
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
