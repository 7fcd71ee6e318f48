import { existsSync, mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Makes a folder with the given mode, and the folders above it that do not exist. Returns the topmost folder
 * that it made, undefined if all exist. Throws the system error of `mkdir`. `mkdir` of Node with `recursive`
 * never returns below a folder that takes no new folders and answers ENOENT, such as `/proc`. The kernel
 * resolves each `..`, because `..` after a symbolic link is the folder above the target of the link.
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

/** Makes one folder, unless another process has made it since. */
function makeFolder(path: string, mode: number): void {
  try {
    mkdirSync(path, { mode });
  } catch (failure) {
    if ((failure as NodeJS.ErrnoException).code !== 'EEXIST' || !existsSync(path)) throw failure;
  }
}
