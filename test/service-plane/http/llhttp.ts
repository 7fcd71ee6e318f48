import { createRequire } from 'node:module';

type Callback = (...values: never[]) => number | undefined;

type NodeParser = {
  initialize(type: number, resource: object, maxHeaderBytes: number, lenient: number): void;
  execute(bytes: Buffer): number | Error;
  [index: number]: Callback | null;
};

type NodeHttp = {
  readonly methods: readonly string[];
  readonly HTTPParser: {
    new (): NodeParser;
    readonly REQUEST: number;
    readonly kOnHeaders: number;
    readonly kOnHeadersComplete: number;
    readonly kOnBody: number;
    readonly kOnMessageComplete: number;
  };
};

const { HTTPParser, methods } = createRequire(import.meta.url)('node:_http_common') as NodeHttp;

/** An HTTP request that Node's strict parser (llhttp) has read. */
export type NodeRequest = {
  readonly method: string;
  readonly url: string;
  readonly version: string;
  readonly headers: readonly (readonly [sent: string, value: string])[];
  readonly body: string;
  readonly isComplete: boolean;
  readonly upgrades: boolean;
};

export type NodeView = { readonly requests: readonly NodeRequest[]; readonly error: string | null };

export function nodeView(bytes: Buffer): NodeView {
  const requests: { -readonly [Key in keyof NodeRequest]: NodeRequest[Key] }[] = [];
  let flushed: string[] = [];
  let flushedUrl = '';
  const parser = new HTTPParser();
  parser.initialize(HTTPParser.REQUEST, {}, 131_072, 0);
  parser[HTTPParser.kOnHeaders] = ((headers: string[], url: string) => {
    flushed.push(...headers);
    flushedUrl += url;
  }) as Callback;
  parser[HTTPParser.kOnHeadersComplete] = (
    major: number,
    minor: number,
    headers: string[] | undefined,
    method: number,
    url: string | undefined,
    _status: number,
    _reason: string,
    upgrades: boolean,
  ) => {
    requests.push({
      method: methods[method] ?? '',
      url: url ?? flushedUrl,
      version: `${major}.${minor}`,
      headers: paired([...flushed, ...(headers ?? [])]),
      body: '',
      isComplete: false,
      upgrades,
    });
    flushed = [];
    flushedUrl = '';
    return 0;
  };
  parser[HTTPParser.kOnBody] = ((data: Buffer) => {
    const last = requests.at(-1);
    if (last !== undefined) last.body += data.toString('latin1');
  }) as Callback;
  parser[HTTPParser.kOnMessageComplete] = (() => {
    const last = requests.at(-1);
    if (last !== undefined) last.isComplete = true;
    // Node also calls `kOnHeaders` for trailers. The next request must not contain these trailers and this
    // URL.
    flushed = [];
    flushedUrl = '';
  }) as Callback;
  const taken = parser.execute(bytes);
  return { requests, error: typeof taken === 'number' ? null : String((taken as { code?: unknown }).code) };
}

/**
 * Returns a function that parses bytes with one parser of Node, as Node does for a connection. The function
 * returns the number of requests that the parser has read so far.
 */
export function nodeReader(): (bytes: Buffer) => number {
  const parser = new HTTPParser();
  parser.initialize(HTTPParser.REQUEST, {}, 131_072, 0);
  let seen = 0;
  parser[HTTPParser.kOnHeadersComplete] = () => {
    seen++;
    return 0;
  };
  return (bytes) => {
    parser.execute(bytes);
    return seen;
  };
}

function paired(flat: readonly string[]): (readonly [string, string])[] {
  return Array.from({ length: flat.length / 2 }, (_, index) => [flat[2 * index] ?? '', flat[2 * index + 1] ?? '']);
}
