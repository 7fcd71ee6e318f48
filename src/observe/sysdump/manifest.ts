/** The content of `manifest.json`, the last file of a dump: a list of all other files. */
export type Manifest = {
  readonly format: 1;
  readonly version: string;
  /** When the dump was started: ISO 8601, UTC. */
  readonly created_at: string;
  readonly nodes: readonly {
    readonly node: string;
    readonly folder: string;
    /** Why the dump of the node is missing or incomplete; null if it is complete. */
    readonly error: string | null;
    readonly entries: readonly ManifestEntry[];
  }[];
};
/**
 * One file in the manifest. `sha256` is in hexadecimal. If `size` is 0, `sha256` is null and the archive does
 * not contain the file.
 */
export type ManifestEntry = {
  /** The path of the file, relative to the node's folder in the archive. */
  readonly name: string;
  readonly outcome: 'complete' | 'cut' | 'failed' | 'timed_out';
  readonly error: string | null;
  readonly size: number;
  readonly sha256: string | null;
  readonly ms: number;
};
