import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { createGunzip } from 'node:zlib';
import { extract } from 'tar-stream';

export type UnpackedFile = {
  readonly text: string;
  readonly mode: number | undefined;
  readonly mtime: Date | undefined;
};

/** Returns the files of a `.tar.gz` archive by name, in the order of the archive. */
export async function unpacked(archive: Readable): Promise<Map<string, UnpackedFile>> {
  const files = new Map<string, UnpackedFile>();
  const entries = extract();
  const gunzip = createGunzip();
  for (const stream of [archive, gunzip]) stream.once('error', (failure) => entries.destroy(failure));
  for await (const entry of archive.pipe(gunzip).pipe(entries)) {
    const { name, mode, mtime } = entry.header;
    files.set(name, { text: await text(entry), mode, mtime });
  }
  return files;
}
