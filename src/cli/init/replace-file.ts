import {
  chmodSync,
  closeSync,
  constants,
  existsSync,
  fchmodSync,
  fchownSync,
  fsyncSync,
  mkdirSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname } from 'node:path';

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;

/**
 * Replaces the content of a file, or of the file that a symlink names. Owner, group and mode stay. A new file
 * belongs to root and `group`, which may read it. A crash leaves the old or the new content.
 */
export function replaceFile(path: string, text: string, group: number): void {
  const folder = mkdirSync(dirname(path), { recursive: true });
  // The umask of root may be stricter, but the user of the node must reach the file.
  if (folder !== undefined) chmodSync(dirname(path), 0o755);
  const target = existsSync(path) ? realpathSync(path) : path;
  const { uid, gid, mode } = existsSync(target) ? statSync(target) : { uid: 0, gid: group, mode: 0o640 };
  const draft = `${target}.new`;
  rmSync(draft, { force: true });
  // The folder may belong to another user: a link at this name must not lead root to another file.
  const fd = openSync(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    fchownSync(fd, uid, gid);
    fchmodSync(fd, mode & 0o777);
    writeFileSync(fd, text);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  renameSync(draft, target);
}
