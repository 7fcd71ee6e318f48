import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { extract } from 'tar-stream';
import { z } from 'zod';

const manifestSchema = z.looseObject({
  format: z.literal(1),
  nodes: z.array(
    z.looseObject({
      folder: z.string(),
      entries: z.array(
        z.looseObject({
          name: z.string(),
          outcome: z.string(),
          error: z.string().nullable(),
          size: z.number(),
          sha256: z.string().nullable(),
        }),
      ),
    }),
  ),
});

type CheckedEntry = {
  /**
   * The path of the file in the archive, without the topmost folder. The path begins with the folder of the
   * node.
   */
  readonly path: string;
  readonly outcome: string;
  readonly error: string | null;
  readonly size: number;
};
export type CheckedArchive = { readonly entries: readonly CheckedEntry[] };

/** Checks during the download that the files of a support dump agree with the manifest of the dump. */
export class ArchiveCheck {
  readonly #gunzip = createGunzip();
  readonly #files = new Map<string, { readonly size: number; readonly sha256: string }>();
  readonly #read: Promise<void>;
  #manifest: Buffer | undefined;

  /** `seen` is called for every file of the archive. */
  constructor(seen: (path: string, size: number) => void) {
    const entries = extract();
    this.#read = Promise.all([pipeline(this.#gunzip, entries), this.#readEntries(entries, seen)]).then(() => {});
    // Callers of `write` and `end` receive the rejection. Without this handler, a rejection before such a
    // call would be unhandled and end the process.
    this.#read.catch(() => {});
  }

  async write(chunk: Uint8Array): Promise<void> {
    if (this.#gunzip.destroyed) await this.#read;
    if (!this.#gunzip.write(chunk)) await Promise.race([once(this.#gunzip, 'drain'), this.#read]);
  }

  /**
   * Reads the rest of the archive. Throws if a file is missing, differs from the manifest, or is not in the
   * manifest.
   */
  async end(): Promise<CheckedArchive> {
    this.#gunzip.end();
    await this.#read;
    if (this.#manifest === undefined) throw new Error('the archive ends before its manifest');
    const { nodes } = manifestSchema.parse(JSON.parse(this.#manifest.toString('utf8')));
    const entries = nodes.flatMap(({ folder, ...node }) =>
      node.entries.map((entry) => ({ ...entry, path: `${folder}/${entry.name}` })),
    );
    for (const { path, size, sha256 } of entries) {
      const file = this.#files.get(path);
      this.#files.delete(path);
      if (size === 0 ? file !== undefined : file?.size !== size || file.sha256 !== sha256)
        throw new Error(`${path} differs from its entry in the manifest`);
    }
    const [unknown] = this.#files.keys();
    if (unknown !== undefined)
      throw new Error(`the archive contains the file ${unknown}, which its manifest does not list`);
    return { entries };
  }

  async #readEntries(entries: ReturnType<typeof extract>, seen: (path: string, size: number) => void): Promise<void> {
    for await (const entry of entries) {
      const path = entry.header.name.slice(entry.header.name.indexOf('/') + 1);
      const hash = createHash('sha256');
      const chunks: Buffer[] = [];
      let size = 0;
      for await (const chunk of entry) {
        const bytes = chunk as Buffer;
        size += bytes.length;
        if (path === MANIFEST) chunks.push(bytes);
        else hash.update(bytes);
      }
      seen(path, size);
      if (path === MANIFEST) this.#manifest = Buffer.concat(chunks);
      else this.#files.set(path, { size, sha256: hash.digest('hex') });
    }
  }
}

const MANIFEST = 'manifest.json';
