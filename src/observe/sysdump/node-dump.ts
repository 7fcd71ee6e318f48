import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { extract } from 'tar-stream';
import { z } from 'zod';
import { withJoinedSignal } from '#contracts/joined-signal.js';
import type { ManifestEntry } from './manifest.js';

/** The support dump of another node. `open` requests it; the stream is a `.tar.gz`. */
export type NodeDump = { readonly node: string; readonly open: (signal: AbortSignal) => Promise<Readable> };

const manifestSchema: z.ZodType<{ readonly nodes: readonly { readonly entries: readonly ManifestEntry[] }[] }> =
  z.object({
    nodes: z.array(
      z.object({
        entries: z.array(
          z.object({
            name: z.string(),
            outcome: z.enum(['complete', 'cut', 'failed', 'timed_out']),
            error: z.string().nullable(),
            size: z.number(),
            sha256: z.string().nullable(),
            ms: z.number(),
          }),
        ),
      }),
    ),
  });

/** The maximum size in bytes of a file in the dump of another node. Collectors write at most 64 MiB. */
const MAX_BYTES = 65 << 20;
/** The time limit in milliseconds for the dump of another node. A collector takes at most 60 s. */
export const NODE_DUMP_MS = 90_000;

/**
 * Copies the files of the dump of another node. Calls `put` for each file, with its path relative to the
 * folder of the node. Rejects only if `put` rejects or `whole` aborts. In all other cases, `error` of the
 * result tells why the dump is incomplete.
 */
export async function copyDump(
  { open }: NodeDump,
  whole: AbortSignal,
  put: (path: string, bytes: Buffer) => Promise<void>,
): Promise<{ readonly error: string | null; readonly entries: readonly ManifestEntry[] }> {
  let entries: readonly ManifestEntry[] | null = null;
  let putFailure: Error | undefined;
  try {
    const files = extract();
    const reading = (async () => {
      for await (const file of files) {
        const { name, size = 0 } = file.header;
        if (size > MAX_BYTES)
          throw new Error(
            `the file ${name} in the support dump of the other node has ${size} bytes, more than ${MAX_BYTES}`,
          );
        const bytes = await buffer(file);
        // The path is ARCHIVE/FOLDER/FILE, or ARCHIVE/manifest.json.
        const [, folder, ...path] = name.split('/');
        if (folder === 'manifest.json') entries = entriesIn(bytes);
        else if (path.length > 0 && !path.includes('..'))
          await put(path.join('/'), bytes).catch((failure: Error) => {
            putFailure = failure;
            throw failure;
          });
      }
    })();
    const copying = withJoinedSignal([whole, AbortSignal.timeout(NODE_DUMP_MS)], async (signal) =>
      pipeline(await open(signal), createGunzip(), files, { signal }),
    );
    await Promise.all([copying, reading]);
  } catch (failure) {
    whole.throwIfAborted();
    if (putFailure !== undefined) throw putFailure;
    return { error: failure instanceof Error ? failure.message : String(failure), entries: entries ?? [] };
  }
  return { error: entries === null ? 'the dump has no manifest' : null, entries: entries ?? [] };
}

function entriesIn(manifest: Buffer): readonly ManifestEntry[] {
  const read = manifestSchema.safeParse(JSON.parse(manifest.toString()));
  if (!read.success) throw new Error('the manifest of the dump has an unknown format');
  return read.data.nodes[0]?.entries ?? [];
}
