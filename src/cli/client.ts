import { readFileSync } from 'node:fs';
import { isLoopback } from '#config/value.js';
import { CliError } from './error.js';
import type { Terminal } from './terminal.js';

const DEFAULT_SERVER = 'http://127.0.0.1:8080';
const DEFAULT_TOKEN_FILE = '/var/lib/weir/admin.token';
const TIMEOUT_MS = 30_000;

export type ServerOptions = { readonly server?: string; readonly tokenFile?: string };

/** Speaks to the management API. Throws `CliError` with what the server said. */
export type Client = {
  request(method: 'GET' | 'POST' | 'DELETE', path: string, body?: unknown): Promise<unknown>;
};

/** The server and token of the flags, else of `WEIR_SERVER` and `WEIR_TOKEN`, else of a node on this machine. */
export function createClient(options: ServerOptions, { environment }: Terminal): Client {
  const server = serverUrl(options.server ?? environment.WEIR_SERVER ?? DEFAULT_SERVER);
  const token = tokenOf(options, environment);
  return {
    async request(method, path, body) {
      const url = new URL(path, server);
      const headers: Record<string, string> = { authorization: `Bearer ${token}` };
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
        throw new CliError(`${server.origin} cannot be reached: ${reasonOf(cause)}`, { cause });
      }
      if (!response.ok) throw new CliError(refusalOf(response.status, text));
      if (text === '') return undefined;
      try {
        return JSON.parse(text) as unknown;
      } catch (cause) {
        throw new CliError(`${url.href} did not answer with JSON; is it the address of a Weir node?`, { cause });
      }
    },
  };
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

function tokenOf({ tokenFile }: ServerOptions, environment: Terminal['environment']): string {
  const given = environment.WEIR_TOKEN;
  const token = tokenFile === undefined && given !== undefined && given !== '' ? given : readToken(tokenFile);
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new CliError(`${tokenFile ?? (given === undefined ? DEFAULT_TOKEN_FILE : 'WEIR_TOKEN')} holds no token`);
  }
  return token;
}

function readToken(file: string = DEFAULT_TOKEN_FILE): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (cause) {
    throw new CliError(`no token: ${reasonOf(cause)}; give one with --token-file or WEIR_TOKEN`, { cause });
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
