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
import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

const { O_RDONLY, O_DIRECTORY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;

/** The mode and owner of a new file. Without `uid` and `gid`, the owner is the user of this process. */
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

/**
 * Like `replaceDurably`, but does not block the thread while the disk stores the file. The caller must not
 * change `parts` until the promise resolves, and must not replace the same file twice at the same time.
 */
export async function replaceDurablyLater(
  path: string,
  parts: readonly NodeJS.ArrayBufferView[],
  mode: number,
): Promise<void> {
  const draft = `${path}.new`;
  await rm(draft, { force: true });
  const file = await open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  try {
    for (const part of parts) await file.appendFile(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
  const folder = await open(dirname(path), O_RDONLY | O_DIRECTORY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
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
