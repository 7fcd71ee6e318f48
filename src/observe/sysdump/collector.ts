export type Chunk = string | Uint8Array;

/** One file of a support dump. What is not among the collectors is not in a dump. */
export type Collector = {
  /** Path in the folder of the node. */
  readonly name: string;
  /** Ends early where the signal says so; what came until then is kept. */
  collect(signal: AbortSignal): AsyncIterable<Chunk>;
  /** Default: `TIMEOUT_MS`. */
  readonly timeoutMs?: number;
  /** What is more is cut off. Default: `MAX_BYTES`. */
  readonly maxBytes?: number;
};

export const TIMEOUT_MS = 10_000;
export const MAX_BYTES = 16 << 20;

/** A file of one value as JSON. Counters are numbers, times and addresses what the value says. */
export function jsonFile(name: string, read: (signal: AbortSignal) => unknown, limits: Limits = {}): Collector {
  return textFile(name, async (signal) => `${jsonOf(await read(signal), 2)}\n`, limits);
}

/** A file of one text. */
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

/** A file of values as JSON, one a line; they come page by page. */
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
