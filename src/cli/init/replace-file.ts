import { chmodSync, existsSync, realpathSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { makeFolders } from '#files/make-folders.js';
import { replaceDurably } from '#files/replaced-file.js';

/**
 * Replaces the content of a file; follows a symbolic link. Keeps owner, group and mode. A new file belongs to
 * root and `group`, which may read it. A crash leaves the old or the new content.
 */
export function replaceFile(path: string, text: string, group: number): void {
  const folder = makeFolders(dirname(path));
  // Set the mode explicitly, because the umask of root may be stricter and the service user must be able to
  // enter the folder.
  if (folder !== undefined) chmodSync(dirname(path), 0o755);
  const target = existsSync(path) ? realpathSync(path) : path;
  const { uid, gid, mode } = existsSync(target) ? statSync(target) : { uid: 0, gid: group, mode: 0o640 };
  replaceDurably(target, text, { mode: mode & 0o777, uid, gid });
}
