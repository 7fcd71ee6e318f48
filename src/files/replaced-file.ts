import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fsyncSync,
  openSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname } from 'node:path';

const { O_RDONLY, O_DIRECTORY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;

/** Without `uid` and `gid`, the file belongs to the user of this process. */
type Owner = { readonly mode: number; readonly uid?: number; readonly gid?: number };

/**
 * Replaces a file by rename, and waits until the disk has stored it. A crash leaves the old or the new
 * content. Is safe in a folder of another user: replaces a symbolic link at `path`, and does not write
 * through a symbolic link at the path of the temporary file.
 */
export function replaceDurably(path: string, text: string, { mode, uid, gid }: Owner): void {
  const draft = `${path}.new`;
  rmSync(draft, { force: true });
  synced(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, (fd) => {
    if (uid !== undefined && gid !== undefined) fchownSync(fd, uid, gid);
    fchmodSync(fd, mode);
    writeFileSync(fd, text);
  });
  renameSync(draft, path);
  synced(dirname(path), O_RDONLY | O_DIRECTORY);
}

function synced(path: string, flags: number, use: (fd: number) => void = () => {}): void {
  const fd = openSync(path, flags, 0o600);
  try {
    use(fd);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
