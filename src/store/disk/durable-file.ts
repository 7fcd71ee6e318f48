import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Writes `content` to a file atomically, with mode 0600, and waits until the disk has stored it. After a
 * crash the file has either the old content or the new content.
 */
export async function writeDurably(path: string, content: Uint8Array | string): Promise<void> {
  const draft = `${path}.new`;
  try {
    await withHandle(draft, 'w', async (file) => {
      await file.chmod(0o600);
      await file.writeFile(content);
      await file.sync();
    });
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw error;
  }
  await withHandle(dirname(path), 'r', (folder) => folder.sync());
}

/**
 * Appends `content` to a file, and waits until the disk has stored it. After a crash the file may end with an
 * incomplete copy of `content`.
 */
export async function appendDurably(path: string, content: Uint8Array): Promise<void> {
  await withHandle(path, 'a', async (file) => {
    await file.writeFile(content);
    await file.datasync();
  });
}

async function withHandle(path: string, flags: string, use: (file: FileHandle) => Promise<void>): Promise<void> {
  const file = await open(path, flags, 0o600);
  try {
    await use(file);
  } finally {
    await file.close();
  }
}
