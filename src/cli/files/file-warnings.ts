import { asWord } from '#cli/completion/candidates.js';
import type { Config } from '#config/config.js';
import { namedFiles } from '#config/named-files.js';
import { unitUser } from './node-user.js';
import { groupName, type SystemUser, userName } from './system-user.js';
import { mayRead, type Obstacle, obstacleTo } from './unreadable-file.js';

/**
 * The folders that the node cannot see, because its systemd unit weir.service has the option `ProtectHome`.
 */
const HIDDEN = ['/root', '/home', '/run/user'];
/** The node refuses this key if other users than the owner can read it. */
const OWN_ONLY = 'cluster.seal_key_file';

/**
 * Returns a sentence for each file that the service user cannot read: the configuration file, and the files
 * that it names. Returns an empty list if there is no such user. Also returns an empty list if this process
 * is not root, because it may then not be able to read the folders.
 */
export function fileWarnings(file: string, config: Config): string[] {
  const user = process.getuid?.() === 0 ? unitUser() : undefined;
  if (user === undefined) return [];
  return [{ key: '', path: file }, ...namedFiles(config)].flatMap(({ key, path }) => {
    const hidden = HIDDEN.find((folder) => path.startsWith(`${folder}/`));
    // Give no warning for a configuration file in a hidden folder: it is a draft, which the unit does not
    // use.
    if (hidden !== undefined)
      return key === '' ? [] : [`${key}: weir.service hides ${hidden} from the node: move ${path} to /etc/weir`];
    const problem = readingProblem(path, user, key);
    return problem === null ? [] : [`${key === '' ? '' : `${key}: `}${problem.message}: ${problem.fix}`];
  });
}

/**
 * Returns why a user cannot read a file, and the command that grants the permission. Returns null if the user
 * can read the file, or if the file does not exist and the user may enter its folders. `key`: the
 * configuration key that contains the path.
 */
export function readingProblem(
  path: string,
  user: SystemUser,
  key = '',
): { readonly message: string; readonly fix: string } | null {
  const obstacle = obstacleTo(path, user);
  // Test the access itself too, because an access control list can grant it despite owner, group and mode.
  if (obstacle === null || mayRead(user, path)) return null;
  return { message: sentence(path, user, obstacle), fix: mend(key, user, obstacle) };
}

function sentence(file: string, { name }: SystemUser, { path, lacks, stats }: Obstacle): string {
  const owner = `owner ${userName(stats.uid)}:${groupName(stats.gid)}, mode ${mode(stats.mode)}`;
  if (lacks === 'search') return `the user ${name} cannot read ${file}, because it may not enter ${path} (${owner})`;
  return `the user ${name} cannot read ${file === path ? file : `${file}, a link to ${path}`} (${owner})`;
}

const mode = (bits: number): string => (bits & 0o7777).toString(8).padStart(4, '0');

/**
 * Returns the command that grants the permission to the service user, and to no other user except those in
 * its group.
 */
function mend(key: string, { name, uid, gids }: SystemUser, { path, lacks, stats }: Obstacle): string {
  const file = asWord(path);
  const bit = lacks === 'read' ? 'r' : 'x';
  if (lacks === 'read' && key === OWN_ONLY) return `chown ${name} ${file} && chmod 400 ${file}`;
  if (uid === stats.uid) return `chmod u+${bit} ${file}`;
  if (gids.includes(stats.gid)) return `chmod g+${bit} ${file}`;
  const isShared = stats.gid !== 0 && (stats.mode & (lacks === 'read' ? 0o040 : 0o010)) !== 0;
  // Do not change the group of the file, because the members of the present group would lose access.
  if (isShared) return `usermod --append --groups ${groupName(stats.gid)} ${name}; then restart weir.service`;
  return `chgrp ${groupName(gids[0] ?? uid)} ${file} && chmod g+${bit} ${file}`;
}
