import type { IncomingMessage } from 'node:http';
import { Agent, type RequestOptions, request } from 'node:https';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as pause, setImmediate as turn } from 'node:timers/promises';
import { TLSSocket } from 'node:tls';
import { ApiFault, faultOf, faultOfStatus } from './api-fault.js';

/** The maximum size in bytes of the plaintext of a TLS record. */
const RECORD_BYTES = 16 * 1024;

/** The secrets of a connection to the server. `caPem`: the only certificates that the client trusts. */
export type Credentials = { readonly caPem: string; readonly token: string };

/** A Kubernetes API server. The client reads the credentials again for each connection. */
export type ApiServer = { readonly url: string; readonly credentials: () => Promise<Credentials> };

export type Deadlines = {
  /** The time limit in milliseconds from the start of the connection to the headers of the response. */
  readonly headersMs: number;
  /** The time limit in milliseconds for a whole response. It does not apply to a watch. */
  readonly bodyMs: number;
  /** The time in milliseconds after which a watch that sends nothing fails. */
  readonly silenceMs: number;
};

const MAX_BODY_BYTES = 64 * 1024 * 1024;
/** The maximum size in bytes of a list that is not split into pages: about 30,000 pods. */
const MAX_WHOLE_BYTES = 256 * 1024 * 1024;
const MAX_LINE_LENGTH = 16 * 1024 * 1024;
const MAX_STATUS_BYTES = 64 * 1024;
const KEEP_ALIVE_MS = 10_000;
/**
 * The pause in milliseconds after each read of a watch. A single change is read at once. Several changes of a
 * busy cluster wait in the socket during the pause and are read together, which takes less CPU time.
 */
const BETWEEN_READS_MS = 34;
/**
 * After a read of at least this many characters, the watch reads without a pause for `BETWEEN_READS_MS`,
 * because the socket buffer may be full and may block the server.
 */
const MANY_CHARACTERS = 32 * 1024;
/**
 * The size in bytes of the read buffer of a response. With a full buffer, Node.js would leave data in the
 * socket.
 */
const BUFFERED_BYTES = 1024 * 1024;

/**
 * One connection to an API server, which sends one request after the other. It ignores proxy variables of the
 * environment, and follows no redirect.
 */
export class ApiSession {
  readonly #url: URL;
  readonly #agent: StoppingAgent;
  readonly #token: string;
  #ended: ApiFault | undefined;
  /** The number of characters in the responses to `get`. */
  received = 0;

  private constructor(
    server: ApiServer,
    { caPem, token }: Credentials,
    readonly deadlines: Deadlines,
    readonly signal: AbortSignal,
  ) {
    // Refuse a CA without a certificate, because Node.js would trust the public certificate authorities
    // instead.
    if (!caPem.includes('-----BEGIN CERTIFICATE-----'))
      throw new Error('the configured CA of the API server contains no PEM certificate');
    this.#url = new URL(server.url);
    this.#token = token;
    const options = {
      ca: caPem,
      // Set this explicitly, because the environment variable NODE_TLS_REJECT_UNAUTHORIZED changes the
      // default.
      rejectUnauthorized: true,
      minVersion: 'TLSv1.2' as const,
      keepAlive: true,
      keepAliveMsecs: KEEP_ALIVE_MS,
      maxSockets: 1,
      highWaterMark: BUFFERED_BYTES,
    };
    this.#agent = new StoppingAgent(options);
  }

  static async open(server: ApiServer, deadlines: Deadlines, signal: AbortSignal): Promise<ApiSession> {
    const late = new ApiFault('failed', `the credentials were not read in ${seconds(deadlines.headersMs)}`);
    let deadline: NodeJS.Timeout | undefined;
    // Limit the time to read the credentials: a file can be on a network file system that does not respond.
    const isLate = new Promise<never>((_, reject) => {
      deadline = setTimeout(() => reject(late), deadlines.headersMs);
    });
    try {
      return new ApiSession(server, await Promise.race([server.credentials(), isLate]), deadlines, signal);
    } catch (failure) {
      throw faultOf(failure);
    } finally {
      clearTimeout(deadline);
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Closes the connection. The current request and all later requests throw `fault`. */
  end(fault: ApiFault): void {
    this.#ended = fault;
    this.#agent.destroy();
  }

  /** Returns the JSON value of a response. `path` begins with a slash, and may have a query. */
  async get(path: string): Promise<unknown> {
    return this.#read(path, MAX_BODY_BYTES);
  }

  /** Like `get`, for a response of up to `MAX_WHOLE_BYTES` bytes, such as a list without pages. */
  async getWhole(path: string): Promise<unknown> {
    return this.#read(path, MAX_WHOLE_BYTES);
  }

  async #read(path: string, mostBytes: number): Promise<unknown> {
    const late = new ApiFault('silent', `the server sent no complete response in ${seconds(this.deadlines.bodyMs)}`);
    let response: IncomingMessage | undefined;
    const deadline = setTimeout(() => response?.destroy(late), this.deadlines.bodyMs);
    try {
      response = await this.#open(path);
      const text = await textOf(response, mostBytes);
      this.received += text.length;
      return parsed(text);
    } catch (failure) {
      throw this.#ended ?? faultOf(failure);
    } finally {
      clearTimeout(deadline);
    }
  }

  /**
   * Opens a watch. Each element of the result contains the complete lines of one read. The result ends if the
   * server ends the response. It throws an `ApiFault` if the connection breaks or sends nothing for
   * `silenceMs`.
   */
  async watch(path: string): Promise<AsyncGenerator<readonly string[], void>> {
    try {
      return this.#lines(await this.#open(path));
    } catch (failure) {
      throw this.#ended ?? faultOf(failure);
    }
  }

  async *#lines(response: IncomingMessage): AsyncGenerator<readonly string[], void> {
    const { silenceMs } = this.deadlines;
    const quiet = new ApiFault('quiet', `the server sent nothing for ${seconds(silenceMs)}`);
    const deadline = setTimeout(() => response.destroy(quiet), silenceMs);
    const { socket } = response;
    let [rest, readsOnUntil] = ['', 0];
    const linesOf = (text: string): readonly string[] => {
      // Search the new chunk only, because splitting the whole text would copy a long line once for each of
      // its chunks.
      const end = text.lastIndexOf('\n');
      const before = rest;
      rest = end === -1 ? before + text : text.slice(end + 1);
      return end === -1 ? [] : (before + text.slice(0, end)).split('\n');
    };
    try {
      for await (const first of response.setEncoding('utf8') as AsyncIterable<string>) {
        // Node.js emits the TLS records of one socket read one after the other. Wait until it has emitted all
        // of them, or the others would wait for `BETWEEN_READS_MS`.
        await turn();
        const text = first + ((response.read() as string | null) ?? '');
        const lines = linesOf(text);
        // Only a complete line proves that the watch works, because a proxy can withhold the rest of a line.
        if (lines.length > 0) deadline.refresh();
        yield lines;
        if (rest.length > MAX_LINE_LENGTH) throw new ApiFault('expired', 'the server sent a line of more than 16 MiB');
        if (text.length >= MANY_CHARACTERS) readsOnUntil = performance.now() + BETWEEN_READS_MS;
        // Do not pause the socket of a complete response, because the HTTP agent may already use it for
        // another request.
        if (rest !== '' || response.complete || performance.now() < readsOnUntil) continue;
        socket.pause();
        await pause(BETWEEN_READS_MS);
        socket.resume();
      }
      if (rest !== '') throw new ApiFault('failed', 'the server ended the watch within a line');
    } catch (failure) {
      // Return the events that arrived during the last pause, before the connection broke.
      const unread: unknown = response.read();
      if (typeof unread === 'string' && this.#ended === undefined) yield linesOf(unread);
      throw this.#ended ?? faultOf(failure);
    } finally {
      clearTimeout(deadline);
      response.destroy();
    }
  }

  /** Returns a response with the status 200. Throws an `ApiFault` for any other status. */
  async #open(path: string): Promise<IncomingMessage> {
    if (this.#ended !== undefined) throw this.#ended;
    const response = await this.#respond(path);
    const { statusCode: code = 0, headers } = response;
    if (code === 200) return response;
    if (code >= 300 && code < 400) {
      response.destroy();
      throw new ApiFault('failed', `${code}: the server redirects; Weir follows no redirects`);
    }
    throw faultOfStatus(code, await messageOf(response, this.deadlines.headersMs), headers['retry-after']);
  }

  #respond(path: string): Promise<IncomingMessage> {
    const { headersMs } = this.deadlines;
    return new Promise((resolve, reject) => {
      const { hostname, port, pathname } = this.#url;
      const sent = request({
        // A URL has brackets around an IPv6 address.
        hostname: hostname.replace(/^\[(.*)\]$/, '$1'),
        port: port === '' ? 443 : port,
        path: pathname.replace(/\/$/, '') + path,
        agent: this.#agent,
        signal: this.signal,
        headers: { accept: 'application/json', authorization: `Bearer ${this.#token}`, 'user-agent': 'weir' },
      });
      const late = new ApiFault('silent', `the server did not respond in ${seconds(headersMs)}`);
      const deadline = setTimeout(() => sent.destroy(late), headersMs);
      sent.once('response', (response) => {
        clearTimeout(deadline);
        resolve(response);
      });
      sent.on('error', (failure) => {
        clearTimeout(deadline);
        const isUntrusted = sent.socket instanceof TLSSocket && sent.socket.authorizationError !== null;
        reject(isUntrusted ? new ApiFault('untrusted', failure.message) : failure);
      });
      sent.end();
    });
  }
}

async function textOf(response: IncomingMessage, mostBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > mostBytes) throw new ApiFault('too_large', `the response has more than ${mostBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length).toString('utf8');
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiFault('failed', 'the response is not JSON');
  }
}

/**
 * Returns the message of the `Status` object in the body. If the body is not a `Status` object, returns the
 * first bytes of the body.
 */
async function messageOf(response: IncomingMessage, withinMs: number): Promise<string> {
  const deadline = setTimeout(() => response.destroy(), withinMs);
  try {
    const text = await textOf(response, MAX_STATUS_BYTES);
    try {
      const { message } = JSON.parse(text) as { readonly message?: unknown };
      return typeof message === 'string' ? message : '';
    } catch {
      return text;
    }
  } catch {
    return '';
  } finally {
    clearTimeout(deadline);
  }
}

const seconds = (ms: number): string => `${ms / 1_000} s`;

/**
 * An agent whose connections read nothing from the kernel while they are paused. By default, a socket of
 * Node.js reads on after `pause()` until its buffer is full, which wakes the thread for each TLS record. A
 * socket with `onread` stops at once.
 */
class StoppingAgent extends Agent {
  override createConnection(
    options: RequestOptions,
    callback?: (failure: Error | null, stream: Duplex) => void,
  ): Duplex | null | undefined {
    const onread = {
      buffer: Buffer.allocUnsafeSlow(RECORD_BYTES),
      // Copy the bytes, because the next record overwrites the buffer.
      callback: (count: number, bytes: Uint8Array): boolean =>
        socket instanceof Socket && socket.push(Buffer.from(bytes.subarray(0, count))),
    };
    const stopping = { ...options, onread };
    const socket = super.createConnection(stopping, callback);
    return socket;
  }
}
