import { asWord } from '#cli/completion/candidates.js';
import type { Config } from '#config/config.js';
import { namedFiles } from '#config/named-files.js';
import { unitUser } from './node-user.js';
import { groupName, type SystemUser, userName } from './system-user.js';
import { mayRead, type Obstacle, obstacleTo } from './unreadable-file.js';

/** The folders that `ProtectHome` of weir.service hides from the node. */
const HIDDEN = ['/root', '/home', '/run/user'];
/** The node refuses this key if other users than the owner can read it. */
const OWN_ONLY = 'cluster.seal_key_file';

/**
 * Returns a sentence for each file that the service user cannot read: the configuration file, and the files
 * that it names. Returns none if there is no such user, or if this process does not run as root: it could
 * then not look into the folders.
 */
export function fileWarnings(file: string, config: Config): string[] {
  const user = process.getuid?.() === 0 ? unitUser() : undefined;
  if (user === undefined) return [];
  return [{ key: '', path: file }, ...namedFiles(config)].flatMap(({ key, path }) => {
    const hidden = HIDDEN.find((folder) => path.startsWith(`${folder}/`));
    // A configuration there is a draft, and not that of the unit.
    if (hidden !== undefined)
      return key === '' ? [] : [`${key}: weir.service hides ${hidden} from the node: move ${path} to /etc/weir`];
    const problem = readingProblem(path, user, key);
    return problem === null ? [] : [`${key === '' ? '' : `${key}: `}${problem.message}: ${problem.fix}`];
  });
}

/**
 * Returns why a user cannot read a file, and the command that gives it the permission; null if it can, or if
 * it may enter all folders on the way to a file that does not exist. `key`: the key of the configuration that
 * names the file.
 */
export function readingProblem(
  path: string,
  user: SystemUser,
  key = '',
): { readonly message: string; readonly fix: string } | null {
  const obstacle = obstacleTo(path, user);
  // An access control list can permit what owner, group and mode do not.
  if (obstacle === null || mayRead(user, path)) return null;
  return { message: sentence(path, user, obstacle), fix: mend(key, user, obstacle) };
}

function sentence(file: string, { name }: SystemUser, { path, lacks, stats }: Obstacle): string {
  const owner = `owner ${userName(stats.uid)}:${groupName(stats.gid)}, mode ${mode(stats.mode)}`;
  if (lacks === 'search') return `the user ${name} cannot read ${file}, because it may not enter ${path} (${owner})`;
  return `the user ${name} cannot read ${file === path ? file : `${file}, a link to ${path}`} (${owner})`;
}

const mode = (bits: number): string => (bits & 0o7777).toString(8).padStart(4, '0');

/** Returns the command that gives the service user the permission, and no other user more than its group. */
function mend(key: string, { name, uid, gids }: SystemUser, { path, lacks, stats }: Obstacle): string {
  const file = asWord(path);
  const bit = lacks === 'read' ? 'r' : 'x';
  if (lacks === 'read' && key === OWN_ONLY) return `chown ${name} ${file} && chmod 400 ${file}`;
  if (uid === stats.uid) return `chmod u+${bit} ${file}`;
  if (gids.includes(stats.gid)) return `chmod g+${bit} ${file}`;
  const isShared = stats.gid !== 0 && (stats.mode & (lacks === 'read' ? 0o040 : 0o010)) !== 0;
  // Another group in its place would take the file from the members of this group.
  if (isShared) return `usermod --append --groups ${groupName(stats.gid)} ${name}; then restart weir.service`;
  return `chgrp ${groupName(gids[0] ?? uid)} ${file} && chmod g+${bit} ${file}`;
}
