import { existsSync, mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Makes a folder with the given mode, and the folders above it that do not exist. Returns the topmost folder
 * that it made, undefined if all exist. Throws the system error of `mkdir`. `mkdir` of Node.js with
 * `recursive` never returns for a path below `/proc`, where `mkdir` fails with ENOENT. Leaves each `..` to
 * the kernel: after a symbolic link, `..` is the folder above the target of the link.
 */
export function makeFolders(path: string, mode = 0o777): string | undefined {
  const missing: string[] = [];
  for (let folder = path; !existsSync(folder); folder = dirname(folder)) {
    missing.unshift(folder);
    if (folder === dirname(folder)) break;
  }
  for (const folder of missing) makeFolder(folder, mode);
  if (!statSync(path).isDirectory()) mkdirSync(path, { mode });
  return missing[0];
}

/** Makes one folder. Does nothing if another process has made it in the meantime. */
function makeFolder(path: string, mode: number): void {
  try {
    mkdirSync(path, { mode });
  } catch (failure) {
    if ((failure as NodeJS.ErrnoException).code !== 'EEXIST' || !existsSync(path)) throw failure;
  }
}
