import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadConfig } from '#config/load.js';
import { isLoopback } from '#config/value.js';
import { CliError } from './error.js';
import type { Terminal } from './terminal.js';

const DEFAULT_SERVER = 'http://127.0.0.1:8080';
const DEFAULT_TOKEN_FILE = '/var/lib/weir/admin.token';
const TIMEOUT_MS = 30_000;

export type ServerOptions = { readonly server?: string; readonly tokenFile?: string; readonly config?: string };

/** Speaks to the management API. Throws `CliError` with what the server said. */
export type Client = {
  request(method: 'GET' | 'POST' | 'DELETE', path: string, body?: unknown): Promise<unknown>;
  /** A file that takes its time to be made; `fileName` is the server's, without a folder. Chunks throw where it breaks off. */
  download(method: 'GET' | 'POST', path: string): Promise<Download>;
};
type Download = {
  readonly fileName: string | undefined;
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Tells the server that nobody wants it any more. */
  readonly cancel: () => void;
};

/**
 * The server and token of the flags, else of the node that `config` configures, else of `WEIR_SERVER` and `WEIR_TOKEN`,
 * else of a node on this machine.
 */
export function createClient(options: ServerOptions, { environment }: Terminal): Client {
  const node = options.config === undefined ? undefined : nodeOf(options.config, environment);
  const server = serverUrl(options.server ?? node?.server ?? (environment.WEIR_SERVER || DEFAULT_SERVER));
  const token = tokenOf(options.tokenFile ?? node?.tokenFile, environment);
  const authorization = `Bearer ${token}`;
  return {
    async request(method, path, body) {
      const url = new URL(path, server);
      const headers: Record<string, string> = { authorization };
      if (body !== undefined) headers['content-type'] = 'application/json';
      let response: Response;
      let text: string;
      try {
        response = await fetch(url, {
          method,
          headers,
          body: body === undefined ? null : JSON.stringify(body),
          redirect: 'error',
          signal: AbortSignal.timeout(TIMEOUT_MS),
        });
        text = await response.text();
      } catch (cause) {
        throw unreachable(server, cause);
      }
      if (!response.ok) throw new CliError(refusalOf(response.status, text));
      if (text === '') return undefined;
      try {
        return JSON.parse(text) as unknown;
      } catch (cause) {
        throw new CliError(`${url.href} did not answer with JSON; is it the address of a Weir node?`, { cause });
      }
    },
    async download(method, path) {
      const given = new AbortController();
      const response = await fetch(new URL(path, server), {
        method,
        headers: { authorization },
        redirect: 'error',
        signal: given.signal,
      }).catch((cause: unknown) => {
        throw unreachable(server, cause);
      });
      if (!response.ok) throw new CliError(refusalOf(response.status, await response.text()));
      const named = /filename="([\w.-]+)"/.exec(response.headers.get('content-disposition') ?? '')?.[1];
      return {
        fileName: named?.replace(/^[.]+/, ''),
        chunks: (response.body ?? new Blob([]).stream()) as AsyncIterable<Uint8Array>,
        cancel: () => given.abort(),
      };
    },
  };
}

function unreachable({ origin }: URL, cause: unknown): CliError {
  return new CliError(`${origin} cannot be reached: ${reasonOf(cause)}`, { cause });
}

function serverUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw new CliError(`${text} is not the URL of a server, such as ${DEFAULT_SERVER}`);
  }
  if (url.protocol === 'http:' && !isLoopback(url.hostname.replace(/^\[|\]$/g, ''))) {
    throw new CliError(`${text} would carry the token in the clear: use https, or a server on this machine`);
  }
  return url;
}

/** Where the node of a configuration file is reached from this machine, and the token that it wrote. */
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

function tokenOf(file: string | undefined, environment: Terminal['environment']): string {
  const given = file === undefined ? environment.WEIR_TOKEN || undefined : undefined;
  const token = given ?? readToken(file ?? DEFAULT_TOKEN_FILE);
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new CliError(`${given === undefined ? (file ?? DEFAULT_TOKEN_FILE) : 'WEIR_TOKEN'} holds no token`);
  }
  return token;
}

function readToken(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (cause) {
    const ways = 'give a token with --token-file or WEIR_TOKEN, or make that admin.token of the node readable';
    throw new CliError(`there is no token: ${file} ${unread(cause)}; ${ways}`, { cause });
  }
}

function unread(cause: unknown): string {
  switch ((cause as { readonly code?: unknown }).code) {
    case 'ENOENT':
    case 'ENOTDIR':
      return 'does not exist';
    case 'EACCES':
      return 'may not be read by this user';
    default:
      return 'cannot be read';
  }
}

/** Problem details carry one plain sentence in `error` (D28). */
function refusalOf(status: number, text: string): string {
  try {
    const { error } = JSON.parse(text) as { error?: unknown };
    if (typeof error === 'string' && error !== '') return error;
  } catch {
    // Whatever stands between here and the node answered with something of its own.
  }
  return `the server answered with ${status}`;
}

function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  if (cause.name === 'TimeoutError') return `no answer within ${TIMEOUT_MS / 1000} s`;
  if (!(cause.cause instanceof Error)) return cause.message;
  const { message } = cause.cause;
  return message !== '' ? message : 'code' in cause.cause ? String(cause.cause.code) : cause.message;
}
