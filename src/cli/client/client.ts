import { lstatSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { CliError, UnreachableError } from '#cli/errors/command-error.js';
import type { Terminal } from '#cli/output/terminal.js';
import { loadConfig } from '#config/load.js';
import { isLoopback } from '#config/value.js';
import { withJoinedSignal } from '#contracts/joined-signal.js';
import { MAX_BYTES, readPipeOrFile, readUnlinkedSync } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';
import { checkListener, foreignAnswer, type TokenFile, unknownListener } from './api-listener.js';
import { refusalOf } from './api-refusal.js';
import { ADVICE_ON_UNIT, hasUnitFailed, whileUnitRuns } from './stopped-unit.js';

const DEFAULT_SERVER = 'http://127.0.0.1:8080';
const DEFAULT_TOKEN_FILE = '/var/lib/weir/admin.token';
const TIMEOUT_MS = 30_000;
const WITHOUT_TOKEN: ReadonlySet<string> = new Set(['/health', '/ready']);

export type ServerOptions = { readonly server?: string; readonly tokenFile?: string; readonly config?: string };

type Request = {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** The request body, sent as JSON. A string is sent unchanged, because it already is JSON. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** Statuses besides 2xx for which the request returns the response instead of throwing an error. */
  readonly accept?: readonly number[];
  /** An abort of this signal ends the request, which then fails. */
  readonly signal?: AbortSignal | undefined;
};
const never = (): AbortSignal => new AbortController().signal;

type Sent = RequestInit & { readonly signal: AbortSignal };
type Reply = {
  readonly status: number;
  readonly headers: Headers;
  /** The parsed JSON of the response; undefined if the response is empty. */
  readonly body: unknown;
};

type Download = {
  readonly fileName: string | undefined;
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Cancels the download before the first chunk is read. */
  readonly cancel: () => Promise<void>;
};

/**
 * A client of the management API. Methods throw a `RefusedError` with the message of the server if the server
 * refuses the request. They throw another `CliError` if there is no token or no usable response.
 */
export type Client = {
  /** Scheme, host and port of the server, for messages to the user. */
  readonly origin: string;
  /** Returns the error for a response at this path that cannot come from a Weir node. */
  foreignAnswer(path: string, cause?: unknown): CliError;
  request(path: string, request?: Request): Promise<unknown>;
  exchange(path: string, request?: Request): Promise<Reply>;
  /** Requests an endless response and returns its chunks. Reading them throws when `signal` aborts. */
  stream(path: string, accept: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
  /**
   * Downloads a file that the server creates slowly, so no time limit applies. `fileName` comes from the
   * server and has no folder. Reading `chunks` throws if the download is incomplete.
   */
  download(path: string): Promise<Download>;
};

/**
 * Creates a client. The flags `--server` and `--token-file` select the server and the token. Without them,
 * the node that `--config` describes is used, then the variables `WEIR_SERVER` and `WEIR_TOKEN`, then a node
 * on this machine. The client reads the token file at each request, because a starting node may create the
 * file after this call.
 */
export function createClient(
  options: ServerOptions,
  { environment, err }: Pick<Terminal, 'environment' | 'err'>,
  timeoutMs = TIMEOUT_MS,
): Client {
  let isWarned = false;
  const node = options.config === undefined ? undefined : nodeOf(options.config, environment);
  const server = serverUrl(options.server ?? node?.server ?? (environment.WEIR_SERVER || DEFAULT_SERVER));

  /** Resolves with the response before its body arrives. `signal` ends the request until then. */
  const send = async (path: string, { signal, ...init }: Sent): Promise<Response> => {
    const url = new URL(path, server);
    const headers = new Headers(init.headers);
    if (!WITHOUT_TOKEN.has(url.pathname)) headers.set('authorization', `Bearer ${await tokenFor(signal)}`);
    return whileUnitRuns(server, (stopped) =>
      withJoinedSignal([stopped, signal], (joined) =>
        fetch(url, { ...init, signal: joined, headers, redirect: 'error' }),
      ),
    );
  };
  // Check the listener before the token is sent: any local user can listen at the address of a node that does
  // not run.
  const tokenFor = async (signal: AbortSignal): Promise<string> => {
    const { token, file } = tokenOf(options.tokenFile, node?.tokenFile, environment);
    if (file === undefined || server.protocol !== 'http:' || checkListener(server, file)) return token;
    const { body } = await fetch(new URL('/health', server), { redirect: 'error', signal });
    await body?.cancel();
    if (!checkListener(server, file)) throw unknownListener(server, file);
    return token;
  };
  const unreachable = async (cause: unknown): Promise<CliError> => {
    if (cause instanceof CliError) return cause;
    if (cause instanceof Error && cause.name === 'AbortError')
      return new CliError('interrupted before the node answered');
    const address = 'check that the node runs at this address; --server, WEIR_SERVER or --config give another address';
    const fix = (await hasUnitFailed(server)) ? `weir.service has failed: ${ADVICE_ON_UNIT}; or ${address}` : address;
    return new UnreachableError(`${server.origin} cannot be reached: ${whyUnreached(cause)}`, { cause, fix });
  };
  const exchange: Client['exchange'] = async (path, request = {}) => {
    const { method = 'GET', body, headers = {}, accept = [], signal = never() } = request;
    const sent = {
      method,
      headers: body === undefined ? headers : { ...headers, 'content-type': 'application/json' },
      body: body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body),
    };
    const { response, text } = await withJoinedSignal([AbortSignal.timeout(timeoutMs), signal], async (ended) => {
      const response = await send(path, { ...sent, signal: ended });
      return { response, text: await textOf(chunksOf(response, ended)) };
    }).catch(async (cause: unknown) => {
      throw await unreachable(cause);
    });
    const { status } = response;
    if (!response.ok && !accept.includes(status)) throw refusalOf(status, text);
    const instead = response.headers.get('weir-enforced-instead');
    if (instead !== null && !isWarned) err(`warning: ${notInForce(Number(instead))}\n`);
    isWarned ||= instead !== null;
    return { status, headers: response.headers, body: text === '' ? undefined : parsed(text, path) };
  };
  const parsed = (text: string, path: string): unknown => {
    try {
      return JSON.parse(text) as unknown;
    } catch (cause) {
      throw foreignAnswer(new URL(path, server), cause);
    }
  };
  return {
    origin: server.origin,
    foreignAnswer: (path, cause) => foreignAnswer(new URL(path, server), cause),
    exchange,
    request: async (path, request) => (await exchange(path, request)).body,
    async stream(path, accept, signal) {
      let response: Response;
      try {
        response = await send(path, { headers: { accept }, signal });
        if (!response.ok) throw refusalOf(response.status, await textOf(chunksOf(response, signal)));
      } catch (cause) {
        throw await unreachable(cause);
      }
      if (response.body === null) throw new CliError(`${server.origin} sent an empty response`);
      return chunksOf(response, signal);
    },
    async download(path) {
      let response: Response;
      try {
        response = await send(path, { method: 'POST', signal: never() });
        if (!response.ok) throw refusalOf(response.status, await response.text());
      } catch (cause) {
        throw await unreachable(cause);
      }
      const named = /filename="([\w.-]+)"/.exec(response.headers.get('content-disposition') ?? '')?.[1];
      return {
        fileName: named?.replace(/^[.]+/, ''),
        chunks: chunksOf(response, never()),
        cancel: async () => response.body?.cancel(),
      };
    },
  };
}

/** Yields the chunks of the body. Throws the reason of `signal` when it aborts. */
async function* chunksOf({ body }: Response, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  if (body === null) return;
  const reader = (body as ReadableStream<Uint8Array>).getReader();
  const end = (): void => void reader.cancel().catch(() => {});
  signal.addEventListener('abort', end);
  try {
    for (;;) {
      signal.throwIfAborted();
      const { done, value } = await reader.read();
      if (done) break;
      yield value;
    }
    signal.throwIfAborted();
  } finally {
    signal.removeEventListener('abort', end);
    end();
  }
}

function serverUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw new CliError(`${text} is not the URL of a server, such as ${DEFAULT_SERVER}`, { exitCode: 2 });
  }
  if (url.protocol === 'http:' && !isLoopback(url.hostname.replace(/^\[|\]$/g, ''))) {
    throw new CliError(`${text} would send the token without encryption: use https, or a server on this machine`, {
      exitCode: 2,
    });
  }
  return url;
}

/**
 * Returns the address, as seen from this machine, and the token file of the node that a configuration file
 * describes.
 */
function nodeOf(file: string, environment: Terminal['environment']): { server: string; tokenFile: string } {
  const { api, node } = loadConfig(file, environment);
  const { host, port } = api.listen;
  const reached = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  const authority = `${reached.includes(':') ? `[${reached}]` : reached}:${port}`;
  return {
    server: `${api.tls === null ? 'http' : 'https'}://${authority}`,
    tokenFile: join(node.dataDir, 'admin.token'),
  };
}

type Token = {
  readonly token: string;
  /** The file that contains the token; undefined if the token comes from WEIR_TOKEN. */
  readonly file: TokenFile | undefined;
};

function tokenOf(given: string | undefined, ofNode: string | undefined, environment: Terminal['environment']): Token {
  const path = given ?? ofNode;
  const inVariable = path === undefined ? environment.WEIR_TOKEN || undefined : undefined;
  const found =
    inVariable === undefined
      ? readToken(path ?? DEFAULT_TOKEN_FILE, given === undefined)
      : { token: inVariable, file: undefined };
  if (!/^[\x21-\x7e]+$/.test(found.token)) {
    throw new CliError(`${found.file?.path ?? 'WEIR_TOKEN'} contains no token`, { code: 'no_token' });
  }
  return found;
}

/**
 * Reads a token file. `isOfNode`: the file is in a folder of the service user, and was not given by a flag.
 * Then root must not follow a symbolic link, or wait for the writer of a FIFO.
 */
function readToken(path: string, isOfNode: boolean): Token {
  try {
    const read = isOfNode ? readUnlinkedSync : readPipeOrFile;
    const token = read(path, MAX_BYTES.secret).toString().trim();
    return { token, file: { path, uid: (isOfNode ? lstatSync : statSync)(path).uid } };
  } catch (cause) {
    const absent = 'the node writes its admin.token when it starts';
    const instead = isAbsent(cause) ? absent : 'the user of the node may read its admin.token';
    const fix = `give a token with --token-file or WEIR_TOKEN; ${instead}`;
    throw new CliError(`there is no token: ${path} ${unread(cause)}`, { cause, fix, code: 'no_token' });
  }
}

function unread(cause: unknown): string {
  if (isAbsent(cause)) return 'does not exist';
  return codeOf(cause) === 'EACCES' ? 'may not be read by this user' : `cannot be read: ${reasonOf(cause)}`;
}

const codeOf = (cause: unknown): unknown => (cause as { readonly code?: unknown }).code;
const isAbsent = (cause: unknown): boolean => codeOf(cause) === 'ENOENT' || codeOf(cause) === 'ENOTDIR';

function whyUnreached(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  if (cause.name === 'TimeoutError') return `no answer within ${TIMEOUT_MS / 1000} s`;
  const { cause: of } = cause;
  if (!(of instanceof Error)) return cause.message;
  if ('reason' in of) return `TLS failed: ${String(of.reason)}`;
  // `fetch` reports one failure per address of a name. Show the failure of the first address.
  return reasonOf(of instanceof AggregateError && of.message === '' ? of.errors[0] : of);
}

/**
 * Returns the sentence that tells the user that the kernel enforces another generation than the stored
 * policies.
 */
export const notInForce = (generation: number): string =>
  `the active policy is not in force: the kernel enforces generation ${generation}, and the data folder is an older or another one; see \`weir status\``;
