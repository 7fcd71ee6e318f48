export type Chunk = string | Uint8Array;

/**
 * Produces one file of a support dump. Besides `manifest.json`, a dump contains only the files of collectors.
 */
export type Collector = {
  /** The path of the file, relative to the node's folder in the archive. */
  readonly name: string;
  /**
   * Yields the content of the file. Must end early when the signal aborts; the dump keeps the chunks yielded
   * before.
   */
  collect(signal: AbortSignal): AsyncIterable<Chunk>;
  /** The time limit in milliseconds; `TIMEOUT_MS` by default. */
  readonly timeoutMs?: number;
  /** The size limit in bytes; a longer file is truncated. `MAX_BYTES` by default. */
  readonly maxBytes?: number;
};

export const TIMEOUT_MS = 10_000;
export const MAX_BYTES = 16 << 20;

/**
 * Returns a collector that writes one JSON value to a file. Converts `bigint` counters to numbers; all other
 * values stay as they are.
 */
export function jsonFile(name: string, read: (signal: AbortSignal) => unknown, limits: Limits = {}): Collector {
  return textFile(name, async (signal) => `${jsonOf(await read(signal), 2)}\n`, limits);
}

/** Returns a collector that writes one text or byte array to a file. */
export function textFile(
  name: string,
  read: (signal: AbortSignal) => Chunk | Promise<Chunk>,
  limits: Limits = {},
): Collector {
  const collect = async function* (signal: AbortSignal) {
    yield await read(signal);
  };
  return { name, ...limits, collect };
}

/**
 * Returns a collector that writes one JSON value per line of text. `pages` yields the values page by page, so
 * that not all values are in memory at the same time.
 */
export function linesFile(
  name: string,
  pages: (signal: AbortSignal) => AsyncIterable<readonly unknown[]>,
  limits: Limits = {},
): Collector {
  const collect = async function* (signal: AbortSignal) {
    for await (const page of pages(signal)) yield page.map((value) => `${jsonOf(value)}\n`).join('');
  };
  return { name, ...limits, collect };
}

type Limits = Pick<Collector, 'timeoutMs' | 'maxBytes'>;

function jsonOf(value: unknown, indent?: number): string {
  const plain = (_: string, member: unknown): unknown => (typeof member === 'bigint' ? Number(member) : member);
  return JSON.stringify(value, plain, indent);
}
