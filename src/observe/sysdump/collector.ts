export type Chunk = string | Uint8Array;

/** One file of a support dump. A dump contains the files of the collectors and nothing else. */
export type Collector = {
  /** The path within the node's folder. */
  readonly name: string;
  /** Ends early when the signal aborts. The chunks yielded until then are kept. */
  collect(signal: AbortSignal): AsyncIterable<Chunk>;
  /** Default: `TIMEOUT_MS`. */
  readonly timeoutMs?: number;
  /** Longer files are truncated. Default: `MAX_BYTES`. */
  readonly maxBytes?: number;
};

export const TIMEOUT_MS = 10_000;
export const MAX_BYTES = 16 << 20;

/** A file with one JSON value. Counters are numbers; times and addresses keep the form that the value has. */
export function jsonFile(name: string, read: (signal: AbortSignal) => unknown, limits: Limits = {}): Collector {
  return textFile(name, async (signal) => `${jsonOf(await read(signal), 2)}\n`, limits);
}

/** A file with one text. */
export function textFile(
  name: string,
  read: (signal: AbortSignal) => Chunk | Promise<Chunk>,
  limits: Limits = {},
): Collector {
  return {
    name,
    ...limits,
    async *collect(signal) {
      yield await read(signal);
    },
  };
}

/** A file with one JSON value per line, read page by page. */
export function linesFile(
  name: string,
  pages: (signal: AbortSignal) => AsyncIterable<readonly unknown[]>,
  limits: Limits = {},
): Collector {
  return {
    name,
    ...limits,
    async *collect(signal) {
      for await (const page of pages(signal)) yield page.map((value) => `${jsonOf(value)}\n`).join('');
    },
  };
}

type Limits = Pick<Collector, 'timeoutMs' | 'maxBytes'>;

function jsonOf(value: unknown, indent?: number): string {
  const plain = (_: string, member: unknown): unknown => (typeof member === 'bigint' ? Number(member) : member);
  return JSON.stringify(value, plain, indent);
}
