import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { hasSystemd, unitExists, unitPrivileges } from '#cli/init/units.js';
import { type SystemUser, systemUser, userName, userNamed } from './system-user.js';
import { mayRead } from './unreadable-file.js';

const DEFAULT_USER = 'weir';
const FOLDER_OF_UNIT = '/etc/weir/';

/** Returns the name of the user as whom `weir.service` runs. The user need not exist. */
export const unitUserName = (): string => (knowsUnit() ? unitPrivileges().user : DEFAULT_USER);

/**
 * Returns the user as whom `weir.service` runs, with the group of the unit first. Without systemd, this is
 * the system user `weir`. Returns undefined if there is no such user.
 */
export function unitUser(): SystemUser | undefined {
  if (!knowsUnit()) return systemUser(DEFAULT_USER);
  const { user, group } = unitPrivileges();
  return userNamed(user, group);
}

/**
 * Returns the user as whom the node of a configuration file runs. Files that a command of root writes for the
 * node belong to this user, or to its first group. A configuration outside of /etc/weir can belong to another
 * process than the unit. Then returns the user of the unit only if root has made the file readable to this
 * user.
 */
export function nodeUser(config: string): SystemUser {
  const { uid, gid } = statSync(config);
  const owner = { name: userName(uid), uid, gids: [gid] };
  const user = unitUser();
  if (user === undefined) return owner;
  if (resolve(config).startsWith(FOLDER_OF_UNIT)) return user;
  return uid === 0 && mayRead(user, config) ? user : owner;
}

const knowsUnit = (): boolean => hasSystemd() && unitExists();
