import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { extname, join, relative } from 'node:path';

/** A file of the console, as the build has compressed it. */
export type ConsoleFile = {
  readonly contentType: string;
  readonly gzip: Buffer;
  readonly etag: string;
  /** Whether the name contains a hash of the contents, so that clients can keep the file for ever. */
  readonly isImmutable: boolean;
};

/** The files of the console by their path below `/console/`. */
export type ConsoleFiles = ReadonlyMap<string, ConsoleFile>;

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.json': 'application/json; charset=utf-8',
  '.txt': 'text/plain; charset=utf-8',
};
const HASHED = /^assets\//;

/**
 * Reads all compressed files (`*.gz`) of a folder, so that no request reads the disk. Returns an empty map if
 * the folder does not exist: a copy without the console serves the API only.
 */
export function readConsoleFiles(folder: string): ConsoleFiles {
  const files = new Map<string, ConsoleFile>();
  for (const path of pathsIn(folder)) {
    const name = relative(folder, path).slice(0, -'.gz'.length);
    const contentType = TYPES[extname(name)];
    if (contentType === undefined) continue;
    const gzip = readFileSync(path);
    const etag = `"${createHash('sha256').update(gzip).digest('base64url')}"`;
    files.set(name, { contentType, gzip, etag, isImmutable: HASHED.test(name) });
  }
  return files;
}

function pathsIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.gz'))
      .map((name) => join(folder, name));
  } catch (failure) {
    if ((failure as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw failure;
  }
}
