import { createHash } from 'node:crypto';
import { PassThrough, pipeline, type Readable } from 'node:stream';
import { createGzip } from 'node:zlib';
import { type Pack, pack } from 'tar-stream';
import { collect } from './collected.js';
import type { Collector } from './collector.js';
import type { Manifest, ManifestEntry } from './manifest.js';
import { copyDump, NODE_DUMP_MS, type NodeDump } from './node-dump.js';

const MANIFEST = 'manifest.json';

export type SysdumpOptions = {
  readonly node: string;
  readonly version: string;
  readonly now?: () => Date;
  /**
   * The time limit of the whole dump in milliseconds. The limit also ends a dump whose client has stopped
   * reading, so that another dump can start.
   */
  readonly timeoutMs?: number;
};

export type Sysdumps = {
  /**
   * Starts a dump of this node and then of `others`. Destroying the returned stream ends the dump early.
   * Returns `running` if another dump is in progress, and `closed` after `close`.
   */
  begin(others?: readonly NodeDump[]): { readonly fileName: string; readonly archive: Readable } | 'running' | 'closed';
  /** Ends the current dump. Later calls of `begin` return `closed`. */
  close(): void;
};

const WHOLE_TIMEOUT_MS = 5 * 60_000;

/**
 * Creates the support dumps of this node (D33), one at a time. `collectorsOf` is called for each dump.
 * Collectors run one after the other, and only as fast as the client reads the archive.
 */
export function createSysdumps(
  { node, version, now = () => new Date(), timeoutMs = WHOLE_TIMEOUT_MS }: SysdumpOptions,
  collectorsOf: () => readonly Collector[],
): Sysdumps {
  let running: Readable | undefined;
  let closed = false;
  return {
    begin(others = []) {
      if (closed) return 'closed';
      if (running !== undefined) return 'running';
      const began = now();
      const time = began.toISOString().replace(/[-:]|[.]\d+/g, '');
      const name = `weir-sysdump-${safe(node)}-${time}`;
      const ended = new AbortController();
      const archive = new PassThrough();
      running = archive;
      const tooLong = (): unknown => archive.destroy(new Error('collect a support dump: it took too long'));
      const timer = setTimeout(tooLong, timeoutMs + others.length * NODE_DUMP_MS);
      archive.once('close', () => {
        clearTimeout(timer);
        ended.abort();
        running = undefined;
      });
      const tar = pack();
      // `pipeline` requires a callback, but this callback has nothing to do: a failure destroys the archive
      // stream, which reports the error to the reader of the stream.
      pipeline(tar, createGzip(), archive, () => {});
      const folder = safe(node);
      write(tar, collectorsOf(), { path: `${name}/${folder}`, mtime: began }, ended.signal)
        .then(async (entries) => {
          const nodes: Manifest['nodes'][number][] = [{ node, folder, error: null, entries }];
          for (const other of others)
            nodes.push(
              await copyDump(other, ended.signal, (path, bytes) =>
                put(tar, `${name}/${safe(other.node)}/${path}`, bytes, began),
              ).then((copied) => ({ node: other.node, folder: safe(other.node), ...copied })),
            );
          const manifest: Manifest = { format: 1, version, created_at: began.toISOString(), nodes };
          await put(tar, `${name}/${MANIFEST}`, Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`), began);
          tar.finalize();
        })
        .catch((failure: unknown) => {
          archive.destroy(failure instanceof Error ? failure : new Error(String(failure)));
        });
      return { fileName: `${name}.tar.gz`, archive };
    },
    close() {
      closed = true;
      running?.destroy(new Error('collect a support dump: the node is shutting down'));
    },
  };
}

async function write(
  tar: Pack,
  collectors: readonly Collector[],
  { path, mtime }: { readonly path: string; readonly mtime: Date },
  signal: AbortSignal,
): Promise<ManifestEntry[]> {
  const entries: ManifestEntry[] = [];
  for (const collector of collectors) {
    signal.throwIfAborted();
    const { bytes, ...said } = await collect(collector, signal);
    signal.throwIfAborted();
    const sha256 = bytes.length === 0 ? null : createHash('sha256').update(bytes).digest('hex');
    entries.push({ name: collector.name, size: bytes.length, sha256, ...said });
    if (bytes.length > 0) await put(tar, `${path}/${collector.name}`, bytes, mtime);
  }
  return entries;
}

/**
 * Appends a file to the archive. Resolves when the stream accepted the bytes, so that a slow reader slows the
 * collectors down.
 */
function put(tar: Pack, name: string, bytes: Buffer, mtime: Date): Promise<void> {
  return new Promise((resolve, reject) => {
    const entry = tar.entry({ name, mtime, mode: 0o600, size: bytes.length }, bytes, (failure) => {
      if (failure) reject(failure);
      else resolve();
    });
    // This listener prevents the event `error` from ending the process. The callback above receives the same
    // error.
    entry.on('error', reject);
  });
}

/** Replaces characters that must not be in a file name. */
function safe(text: string): string {
  return text.replace(/[^\w.-]/g, '_').replace(/^[.]+/, '_');
}
